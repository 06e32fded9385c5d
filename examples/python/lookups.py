"""Provide the ConfigMaps that policies read."""

import lictor

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: known-teams}
spec:
  rules:
  - name: team-is-known
    match: {any: [{resources: {kinds: [Pod], operations: [CREATE]}}]}
    context:
    - name: directory
      configMap: {name: teams, namespace: platform}
    validate:
      failureAction: Enforce
      message: "unknown team {{ request.object.metadata.labels.team }}"
      deny:
        conditions:
          all:
          - key: "{{ request.object.metadata.labels.team }}"
            operator: AnyNotIn
            value: "{{ parse_json(directory.data.teams) }}"
"""


class Teams(lictor.NoLookups):
    """One ConfigMap; every other lookup is an error of the rule."""

    def config_map(self, namespace, name):
        if (namespace, name) == ("platform", "teams"):
            return {"metadata": {"name": name}, "data": {"teams": '["till", "kitchen"]'}}
        raise lictor.LookupFailedError(f"no ConfigMap {namespace}/{name}")


engine = lictor.Engine(lictor.parse_policies(POLICY, lookups=Teams()))
for team in ("kitchen", "garden"):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"team": team}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    }
    verdict = engine.evaluate(pod)
    print(team, verdict.allowed, *[result.message for result in verdict.results])
