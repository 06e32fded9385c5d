"""Policy exceptions made from violations: what `apply --generate-exceptions` prints."""

import hashlib
import re
from collections.abc import Iterable, Iterator

import orjson

from lictor.families.registry import registry
from lictor.lang.duration import format_duration
from lictor.model.result import Result, Status, Verdict
from lictor.offline.responses import key_of
from lictor.raw import Json, JsonObject
from lictor.report.summary import reported_status

_CRONJOB_PREFIX = "autogen-cronjob-"
_PREFIX = "autogen-"
_CEL_GROUP = "policies.kyverno.io/"
# Names stand in labels too, which are shorter than names may be: policy admission wants it so.
_LONGEST_NAME = 63
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_TAG_OR_DIGEST = re.compile(r":.*|@.*")


def build_exceptions(
    verdicts: Iterable[Verdict], ttl: int, *, audit_warn: bool = False
) -> Iterator[JsonObject]:
    """One exception for each violation of a cluster-wide policy; `ttl` is in nanoseconds."""
    for verdict in verdicts:
        for result in verdict.results:
            status = reported_status(result, audit_warn=audit_warn)
            if status is not Status.FAIL or result.policy.namespace:
                continue
            kind = registry().of_result(result.policy)
            if kind.has_named_rules:
                yield _build_exception(result, verdict.request.resource, ttl)
            elif kind.cel_profile:
                yield _build_cel_exception(result, verdict.request.resource, ttl)
            # From Kubernetes' own policies there are no exceptions.


def _build_cel_exception(result: Result, resource: JsonObject, ttl: int) -> JsonObject:
    _, kind, namespace, name = key_of(resource)
    facts = {"kind": kind, "metadata.namespace": namespace, "metadata.name": name}
    tests = [f"object.{path} == {_quote(value)}" for path, value in facts.items()]
    policy = result.policy
    return {
        "apiVersion": f"{_CEL_GROUP}v1",
        "kind": "PolicyException",
        "metadata": _describe((policy.name, namespace, name), ttl),
        "spec": {
            "policyRefs": [{"name": policy.name, "kind": policy.kind}],
            "matchConditions": [{"name": "this-resource", "expression": " && ".join(tests)}],
        },
    }


def _quote(text: str) -> str:
    # What JSON escapes, CEL escapes alike.
    return orjson.dumps(text).decode()


def make_object_name(text: str) -> str:
    """A name that a cluster takes: the text itself, or what is left of it with a hash of it all."""
    made = _NOT_IN_NAMES.sub("-", text.lower())
    if made == text and len(text) <= _LONGEST_NAME and _NAME.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    kept = made[: _LONGEST_NAME - len(digest) - 1].strip("-.")
    return f"{kept}-{digest}" if kept else digest


def _describe(names: tuple[str, ...], ttl: int) -> JsonObject:
    metadata: JsonObject = {"name": make_object_name("-".join(names))}
    if ttl > 0:
        metadata["labels"] = {"cleanup.kyverno.io/ttl": format_duration(ttl)}
    return metadata


def _build_exception(result: Result, resource: JsonObject, ttl: int) -> JsonObject:
    _, kind, namespace, name = key_of(resource)
    kinds, names, rules = _widen(result.rule, kind, name)
    spec: JsonObject = {
        "exceptions": [{"policyName": result.policy.name, "ruleNames": rules}],
        "match": {
            "all": [{"resources": {"kinds": kinds, "names": names, "namespaces": [namespace]}}]
        },
    }
    controls = _read_controls(result)
    if controls:
        spec["podSecurity"] = controls
    return {
        "apiVersion": "kyverno.io/v2beta1",
        "kind": "PolicyException",
        "metadata": _describe((result.policy.name, result.rule, namespace, name), ttl),
        "spec": spec,
    }


def _widen(rule: str, kind: str, name: str) -> tuple[list[str], list[str], list[str]]:
    """A controller's exception must also hold for the Pods it makes, and for their rules."""
    if not rule.startswith(_PREFIX):
        return [kind], [name], [rule]
    if kind == "CronJob":
        bare = rule.removeprefix(_CRONJOB_PREFIX)
        return [kind, "Job", "Pod"], [name, f"{name}-*"], [rule, f"{_PREFIX}{bare}", bare]
    return [kind, "Pod"], [name, f"{name}-*"], [rule, rule.removeprefix(_PREFIX)]


def _read_controls(result: Result) -> list[JsonObject]:
    """The controls of the Pod Security Standards that were broken, with their images."""
    try:
        controls = orjson.loads(result.properties.get("controlsJSON") or "[]")
    except orjson.JSONDecodeError:
        return []
    return [_describe_control(found) for found in controls if isinstance(found, dict)]


def _describe_control(control: Json) -> JsonObject:
    described: JsonObject = {"controlName": control.get("Name")}
    images = control.get("Images")
    if isinstance(images, list) and images:
        described["images"] = [_TAG_OR_DIGEST.sub("*", str(image)) for image in images]
    return described
