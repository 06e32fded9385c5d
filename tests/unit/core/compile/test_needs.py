"""Rules say what they need beside the request before they meet one."""

import pytest

from lictor.core.engine import Engine
from lictor.core.model.program import Needs
from lictor.core.model.request import Request

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}


def make_classic(**rule: object) -> dict[str, object]:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, **rule}]
        },
    }


def make_validating(expression: str) -> dict[str, object]:
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": expression}],
        },
    }


PATTERN = {
    "validate": {"message": "m", "pattern": {"spec": {"=(volumes)": [{"X(configMap)": "null"}]}}}
}
DENY = {"validate": {"message": "m", "deny": {}}}
CONFIG_MAP = {"name": "c", "configMap": {"name": "c", "namespace": "team"}}


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        (make_classic(**PATTERN), Needs.NOTHING),
        (make_classic(**DENY, context=[{"name": "v", "variable": {"value": "configMap"}}]), Needs.NOTHING),
        (make_classic(**DENY, context=[CONFIG_MAP]), Needs.LOOKUPS),
        (make_classic(**DENY, context=[{"name": "a", "apiCall": {"urlPath": "/api"}}]), Needs.LOOKUPS),
        (
            make_classic(validate={"foreach": [{"list": "x", "context": [CONFIG_MAP], "deny": {}}]}),
            Needs.LOOKUPS,
        ),
        (make_classic(**DENY, exclude={"any": [{"clusterRoles": ["admin"]}]}), Needs.ROLES),
        (
            make_classic(**DENY, preconditions={"all": [{"key": "{{ request.roles }}", "operator": "In", "value": "x"}]}),
            Needs.ROLES,
        ),
        (make_classic(validate={"cel": {"expressions": [{"expression": "authorizer.group('').resource('pods').check('get').allowed()"}]}}), Needs.LOOKUPS),
        (make_validating("object.spec.containers.all(c, c.image.startsWith('a'))"), Needs.NOTHING),
        (make_validating("resource.Get('v1', 'pods', 'a', 'b') != null"), Needs.LOOKUPS),
        (make_validating("http.Get('http://a') == 1"), Needs.LOOKUPS),
        (make_validating("globalContext.Get('a', '') == 1"), Needs.LOOKUPS),
        (make_validating("image.GetMetadata(object.spec.x).config.os == 'linux'"), Needs.LOOKUPS | Needs.IMAGES),
        (make_classic(verifyImages=[{"imageReferences": ["*"]}]), Needs.IMAGES),
    ],
)  # fmt: skip
def test_needs(policy: dict[str, object], needs: Needs) -> None:
    import yaml

    from lictor import parse_policies

    engine = Engine(parse_policies(yaml.safe_dump(policy)))
    assert engine.find_needs(Request.of(POD)) == needs
