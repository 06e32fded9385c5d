"""What `-r` gives answers what policies ask of a cluster, and never more than that."""

from pathlib import Path

import pytest

from lictor.cli.exit_codes import run

HEAD = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: asks}
spec:
  rules:
  - name: asks
"""
BY_NAMESPACE = """
    match: {any: [{resources: {kinds: [Pod], namespaceSelector: {matchLabels: {zone: a}}}}]}
    validate: {message: never, pattern: {metadata: {name: "!mine"}}}
"""
BY_LIST = """
    match: {any: [{resources: {kinds: [Service]}}]}
    context:
    - name: others
      apiCall:
        urlPath: /api/v1/namespaces/{{request.namespace}}/services
        jmesPath: items[?spec.port == `{{request.object.spec.port}}`] | length(@)
    validate:
      message: the port is taken
      deny: {conditions: {all: [{key: "{{others}}", operator: GreaterThan, value: 0}]}}
"""
BY_MAP = """
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: allowed
      configMap: {name: names, namespace: default}
    validate:
      message: unknown name
      deny:
        conditions:
          all:
          - {key: "{{request.object.metadata.name}}", operator: NotEquals, value: "{{allowed.data.name}}"}
"""
POD = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: mine, namespace: shop}\n"
NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {zone: ZONE}}\n"
NAMES = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: names}\ndata: {name: NAME}\n"
SERVICE = "---\napiVersion: v1\nkind: Service\nmetadata: {name: NAME}\nspec: {port: PORT}\n"


def service(name: str, port: int) -> str:
    return SERVICE.replace("NAME", name).replace("PORT", str(port))


@pytest.mark.parametrize(
    ("rule", "resources", "counts"),
    [
        (BY_NAMESPACE, POD + NAMESPACE.replace("ZONE", "a"), "pass: 0, fail: 1, warn: 0, error: 0"),
        (BY_NAMESPACE, POD + NAMESPACE.replace("ZONE", "b"), "pass: 0, fail: 0, warn: 0, error: 0"),
        (BY_MAP, POD + NAMES.replace("NAME", "mine"), "pass: 1, fail: 0, warn: 0, error: 0"),
        (BY_MAP, POD + NAMES.replace("NAME", "other"), "pass: 0, fail: 1, warn: 0, error: 0"),
        # Each sees all of them, itself too, as in Kyverno 1.19.
        (BY_LIST, service("a", 1) + service("b", 2), "pass: 0, fail: 2, warn: 0, error: 0"),
        (BY_LIST, service("a", 1) + service("b", 1), "pass: 0, fail: 2, warn: 0, error: 0"),
        (BY_LIST, service("a", 1), "pass: 0, fail: 1, warn: 0, error: 0"),
        (BY_MAP, POD, "pass: 0, fail: 0, warn: 0, error: 1"),
    ],
)
def test_resources_answer_lookups(capsys, tmp_path: Path, rule, resources, counts) -> None:
    (tmp_path / "policy.yaml").write_text(HEAD + rule)
    (tmp_path / "all.yaml").write_text(resources)
    run(["apply", str(tmp_path / "policy.yaml"), "-r", str(tmp_path / "all.yaml")])
    assert counts in capsys.readouterr().out
