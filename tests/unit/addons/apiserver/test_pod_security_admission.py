"""Namespaces that say by labels what their Pods may do."""

import pytest
from access_world import World, make

from lictor.addons.apiserver.admission.plugins import PodSecurityAdmission
from lictor.addons.apiserver.submission import Submission
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

PRIVILEGED: JsonObject = {
    "hostNetwork": True,
    "containers": [{"name": "c", "image": "x", "securityContext": {"privileged": True}}],
}
PLAIN: JsonObject = {"containers": [{"name": "c", "image": "x"}]}
BASELINE = (
    '"baseline:latest": host namespaces (hostNetwork=true), privileged (container "c" must not set '
    "securityContext.privileged=true)"
)
RESTRICTED = (
    'allowPrivilegeEscalation != false (container "c" must set '
    'securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" '
    'must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container '
    '"c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must '
    'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
)

NEW_SYSCTL = "net.ipv4.tcp_notsent_lowat"


def _sysctl(name: str) -> JsonObject:
    return {**PLAIN, "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}


def _world(**labels: str) -> World:
    named = {
        f"pod-security.kubernetes.io/{mode.replace('_', '-')}": value
        for mode, value in labels.items()
    }
    return World(make("v1", "Namespace", "safe", labels=named))


def _pod(spec: JsonObject) -> JsonObject:
    return make("v1", "Pod", "p", "safe", spec=spec)


def _deployment(spec: JsonObject) -> JsonObject:
    return make("apps/v1", "Deployment", "d", "safe", spec={"template": {"spec": spec}})


def _validate(
    world: World, document: JsonObject, old: JsonObject | None = None, subresource: str = ""
) -> list[str]:
    warnings: list[str] = []
    verb = "create" if old is None else "update"
    attributes = world.ask(document, verb, subresource=subresource)
    PodSecurityAdmission(world.reader).validate(Submission(attributes, document, old), warnings)
    return warnings


@pytest.mark.parametrize(
    ("labels", "spec", "message"),
    [
        ({"enforce": "baseline"}, PRIVILEGED, BASELINE),
        ({"enforce": "restricted"}, PLAIN, f'"restricted:latest": {RESTRICTED}'),
        (
            {"enforce": "restricted", "enforce_version": "v1.25"},
            PLAIN,
            f'"restricted:v1.25": {RESTRICTED}',
        ),
        ({"enforce": "nonsense"}, PLAIN, f'"restricted:latest": {RESTRICTED}'),
    ],
    ids=["baseline", "restricted", "version", "unreadable"],
)
def test_refused(labels: dict[str, str], spec: Json, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _validate(_world(**labels), _pod(spec))
    assert error.value.message == f'pods "p" is forbidden: violates PodSecurity {message}'
    assert error.value.code == 403


@pytest.mark.parametrize(
    ("labels", "document", "warnings"),
    [
        ({}, _pod(PRIVILEGED), []),
        ({"enforce": "privileged"}, _pod(PRIVILEGED), []),
        ({"enforce": "baseline"}, _pod(PLAIN), []),
        ({"enforce": "baseline", "enforce_version": "v1.37"}, _pod(_sysctl(NEW_SYSCTL)), []),
        (
            {"warn": "baseline", "warn_version": "v1.36"},
            _pod(_sysctl(NEW_SYSCTL)),
            [f'would violate PodSecurity "baseline:v1.36": forbidden sysctls ({NEW_SYSCTL})'],
        ),
        ({"enforce": "baseline"}, _deployment(PRIVILEGED), []),
        ({"warn": "baseline"}, _pod(PRIVILEGED), [f"would violate PodSecurity {BASELINE}"]),
        ({"warn": "baseline"}, _deployment(PRIVILEGED), [f"would violate PodSecurity {BASELINE}"]),
        ({"warn": "baseline"}, make("v1", "ConfigMap", "c", "safe"), []),
    ],
    ids=[
        "none",
        "privileged",
        "fine",
        "new-sysctl",
        "old-version",
        "workload",
        "warned",
        "warned-workload",
        "other-kind",
    ],
)
def test_allowed(labels: dict[str, str], document: JsonObject, warnings: list[str]) -> None:
    assert _validate(_world(**labels), document) == warnings


def test_only_changes_that_matter_are_judged() -> None:
    world = _world(enforce="baseline")
    old = _pod(PRIVILEGED)
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert _validate(world, labelled, old) == []
    assert _validate(world, old, old, "status") == []
    changed = _pod({**PRIVILEGED, "containers": [{**PRIVILEGED["containers"][0], "image": "y"}]})
    with pytest.raises(RefusedRequestError):
        _validate(world, changed, old)
