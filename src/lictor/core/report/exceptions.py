"""Policy exceptions made from violations: what `apply --generate-exceptions` and the page show."""

import re
from collections.abc import Iterable, Iterator, Mapping

import orjson

from lictor.core.families.registry import registry
from lictor.core.lang.duration import format_duration
from lictor.core.model.result import PolicyRef, Status, Verdict
from lictor.core.raw import Json, JsonObject
from lictor.core.report.resource_name import read_metadata, read_text
from lictor.core.report.resource_report import ReportSubject
from lictor.core.report.summary import reported_status

# The namespace is unknown in a file without one: that must not except the name everywhere.
NO_NAMESPACE = "*"
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
        subject = _read_subject(verdict.request.resource)
        for result in verdict.results:
            status = reported_status(result, audit_warn=audit_warn)
            if status is not Status.FAIL or result.policy.namespace:
                continue
            made = build_exception(result.policy, result.rule, subject, ttl, result.properties)
            if made is not None:
                yield made


def build_exception(
    policy: PolicyRef,
    rule: str,
    subject: ReportSubject,
    ttl: int,
    properties: Mapping[str, str],
) -> JsonObject | None:
    """The exception that frees one resource from one rule; None where the policy knows none.

    The namespace of the subject is `*` for what is in no namespace.
    """
    kind = registry().of(policy)
    if kind.has_named_rules:
        return _build_exception(policy, rule, subject, ttl, properties)
    # From Kubernetes' own policies there are no exceptions.
    return _build_cel_exception(policy, subject, ttl) if kind.cel_profile else None


def _read_subject(resource: JsonObject) -> ReportSubject:
    metadata = read_metadata(resource)
    return ReportSubject(
        api_version=read_text(resource.get("apiVersion")),
        kind=read_text(resource.get("kind")),
        namespace=read_text(metadata.get("namespace")),
        name=read_text(metadata.get("name")),
        uid="",
    )


def _build_cel_exception(policy: PolicyRef, subject: ReportSubject, ttl: int) -> JsonObject:
    facts = {"kind": subject.kind}
    if subject.namespace != NO_NAMESPACE:
        facts["metadata.namespace"] = subject.namespace
    facts["metadata.name"] = subject.name
    tests = [f"object.{path} == {_quote(value)}" for path, value in facts.items()]
    return {
        "apiVersion": f"{_CEL_GROUP}v1",
        "kind": "PolicyException",
        "metadata": _describe((policy.name, subject.namespace, subject.name), ttl),
        "spec": {
            "policyRefs": [{"name": policy.name, "kind": policy.kind}],
            "matchConditions": [{"name": "this-resource", "expression": " && ".join(tests)}],
        },
    }


def _quote(text: str) -> str:
    # What JSON escapes, CEL escapes alike.
    return orjson.dumps(text.encode(errors="replace").decode()).decode()


def make_object_name(text: str) -> str:
    """A name that a cluster takes: the text itself, or what is left of it with a hash of it all."""
    made = _NOT_IN_NAMES.sub("-", text.lower())
    if made == text and len(text) <= _LONGEST_NAME and _NAME.fullmatch(text):
        return text
    # Loads OpenSSL, which most runs never need.
    import hashlib

    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    kept = made[: _LONGEST_NAME - len(digest) - 1].strip("-.")
    return f"{kept}-{digest}" if kept else digest


def _describe(names: tuple[str, ...], ttl: int) -> JsonObject:
    named = [name for name in names if name != NO_NAMESPACE]
    metadata: JsonObject = {"name": make_object_name("-".join(named))}
    if ttl > 0:
        metadata["labels"] = {"cleanup.kyverno.io/ttl": format_duration(ttl)}
    return metadata


def _build_exception(
    policy: PolicyRef,
    rule: str,
    subject: ReportSubject,
    ttl: int,
    properties: Mapping[str, str],
) -> JsonObject:
    kinds, names, rules = _widen(rule, subject.kind, subject.name)
    place = {"namespaces": [subject.namespace]} if subject.namespace != NO_NAMESPACE else {}
    spec: JsonObject = {
        "exceptions": [{"policyName": policy.key, "ruleNames": rules}],
        "match": {"all": [{"resources": {"kinds": kinds, "names": names, **place}}]},
    }
    controls = _read_controls(properties)
    if controls:
        spec["podSecurity"] = controls
    return {
        "apiVersion": "kyverno.io/v2beta1",
        "kind": "PolicyException",
        "metadata": _describe((policy.name, rule, subject.namespace, subject.name), ttl),
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


def _read_controls(properties: Mapping[str, str]) -> list[JsonObject]:
    """The controls of the Pod Security Standards that were broken, with their images."""
    try:
        controls = orjson.loads(properties.get("controlsJSON") or "[]")
    except orjson.JSONDecodeError:
        return []
    return [_describe_control(found) for found in controls if isinstance(found, dict)]


def _describe_control(control: Json) -> JsonObject:
    described: JsonObject = {"controlName": control.get("Name")}
    images = control.get("Images")
    if isinstance(images, list) and images:
        described["images"] = [_TAG_OR_DIGEST.sub("*", str(image)) for image in images]
    return described
