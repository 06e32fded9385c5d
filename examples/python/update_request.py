"""Evaluate an update by a known caller in a labelled namespace."""

import lictor

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: frozen-settings}
spec:
  background: false
  rules:
  - name: only-admins
    match: {any: [{resources: {kinds: [ConfigMap], operations: [UPDATE]}}]}
    exclude: {any: [{clusterRoles: [cluster-admin]}]}
    validate:
      failureAction: Enforce
      message: "{{ request.userInfo.username }} may not change settings"
      deny: {}
"""
engine = lictor.Engine(lictor.parse_policies(POLICY))
metadata = {"name": "settings", "namespace": "shop"}
old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
new = {**old, "data": {"color": "blue"}}
for roles in (("edit",), ("cluster-admin",)):
    caller = lictor.Caller(username="ada", groups=("painters",), cluster_roles=roles)
    request = lictor.Request.of(
        new, operation="UPDATE", old=old, caller=caller, namespace_labels={"stage": "live"}
    )
    verdict = engine.evaluate(request)
    print(roles[0], verdict.allowed, *[result.message for result in verdict.results])
