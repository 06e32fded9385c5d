"""A rule about a Pod, moved to where a controller keeps its Pods' template."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.lang.kind_selector import KindTest, compile_kind_selector, parse_kind_selector
from lictor.core.lang.pattern.anchor import replace_references
from lictor.core.model.matching import Match, ResourceFilter
from lictor.core.model.policy import ForEachMutate, Mutate, Rule, Validate
from lictor.core.raw import Json
from lictor.core.records import convert_record

_QUALIFIED = {
    "CronJob": "batch/v1/CronJob",
    "DaemonSet": "apps/v1/DaemonSet",
    "Deployment": "apps/v1/Deployment",
    "Job": "batch/v1/Job",
    "Pod": "v1/Pod",
    "ReplicaSet": "apps/v1/ReplicaSet",
    "ReplicationController": "v1/ReplicationController",
    "StatefulSet": "apps/v1/StatefulSet",
}

# None if a filter does not apply to the new kinds.
Retarget: TypeAlias = Callable[[ResourceFilter, tuple[str, ...]], ResourceFilter | None]


def _retarget_pods(wanted: ResourceFilter, kinds: tuple[str, ...]) -> ResourceFilter:
    if not any(parse_kind_selector(kind).kind == "Pod" for kind in wanted.resources.kinds):
        return wanted
    return _retarget_all(wanted, kinds)


def _retarget_narrowly(wanted: ResourceFilter, kinds: tuple[str, ...]) -> ResourceFilter | None:
    """Validation evaluates the new rule for controllers alone: what a filter has for other kinds is
    left to the rule as it was written.
    """
    moved = _retarget_pods(wanted, kinds)
    if moved is not wanted or not wanted.resources.kinds:
        return moved
    tests = [compile_kind_selector(parse_kind_selector(kind)) for kind in wanted.resources.kinds]
    kept = tuple(kind for kind in kinds if _is_among(kind, tests))
    return _retarget_all(wanted, kept) if kept else None


def _is_among(kind: str, tests: list[KindTest]) -> bool:
    named = parse_kind_selector(kind)
    return any(test(named.group, named.version, named.kind, "") for test in tests)


def _retarget_all(wanted: ResourceFilter, kinds: tuple[str, ...]) -> ResourceFilter:
    return replace(wanted, resources=replace(wanted.resources, kinds=kinds))


class Nesting(msgspec.Struct, frozen=True):
    """The path of the Pod's fields inside a controller, and which filters name that kind."""

    path: tuple[str, ...]
    retarget: Retarget

    def wrap(self, value: Json) -> Json:
        """Move fields of a Pod below the template."""
        for key in reversed(self.path):
            value = {key: value}
        return value


IN_TEMPLATE = Nesting(("spec", "template"), _retarget_pods)
IN_VALIDATED_TEMPLATE = Nesting(("spec", "template"), _retarget_narrowly)
IN_CRON_JOB = Nesting(("spec", "jobTemplate", "spec", "template"), _retarget_all)


def nest_filters(rule: Rule, name: str, kinds: tuple[str, ...], nesting: Nesting) -> Rule:
    """Return the rule with filters for controllers of these kinds, and the same body."""
    qualified = tuple(_QUALIFIED.get(kind, kind) for kind in kinds)
    return replace(
        rule,
        name=name,
        match=_nest_match(rule.match, qualified, nesting),
        exclude=None if rule.exclude is None else _nest_exclude(rule.exclude, qualified, nesting),
        # Kyverno does not carry these over: controllers have the Pod's own places for images.
        image_extractors={},
    )


def nest_body(rule: Rule, nesting: Nesting) -> Rule:
    """Return the rule with its body moved to the template."""
    return _move_variables(_nest_body(rule, nesting), nesting)


def _nest_match(match: Match, kinds: tuple[str, ...], nesting: Nesting) -> Match:
    if match.any:
        moved = (nesting.retarget(each, kinds) for each in match.any)
        return replace(match, any=tuple(each for each in moved if each is not None))
    if match.all:
        # A filter that fits none of the kinds stays, so that the rule fits none either.
        return replace(match, all=tuple(nesting.retarget(f, kinds) or f for f in match.all))
    return replace(match, resources=replace(match.resources, kinds=kinds))


def _nest_exclude(exclude: Match, kinds: tuple[str, ...], nesting: Nesting) -> Match:
    if not (exclude.any or exclude.all or exclude.resources.kinds):
        return exclude
    return _nest_match(exclude, kinds, nesting)


def _nest_body(rule: Rule, nesting: Nesting) -> Rule:
    mutate = _nest_mutate(rule.mutate, nesting) if rule.mutate is not None else None
    if mutate is not None:
        return replace(rule, mutate=mutate)
    validate = _nest_validate(rule.validate, nesting) if rule.validate is not None else None
    if validate is not None:
        return replace(rule, validate=validate)
    return rule


def _nest_mutate(mutate: Mutate, nesting: Nesting) -> Mutate | None:
    if mutate.patch_strategic_merge is not None:
        return Mutate(patch_strategic_merge=nesting.wrap(mutate.patch_strategic_merge))
    if not mutate.foreach:
        return None
    return Mutate(
        foreach=tuple(
            ForEachMutate(
                list=each.list,
                context=each.context,
                preconditions=each.preconditions,
                patch_strategic_merge=nesting.wrap(each.patch_strategic_merge),
            )
            for each in mutate.foreach
        )
    )


def _nest_validate(validate: Validate, nesting: Nesting) -> Validate | None:
    """Move the first body there is; the others would not be looked at anyway."""
    if validate.pattern is not None:
        return _keep(validate, nesting, "pattern", pattern=nesting.wrap(validate.pattern))
    if validate.deny is not None:
        return _keep(validate, nesting, "deny", deny=validate.deny)
    if validate.pod_security is not None:
        return _keep(validate, nesting, "podSecurity", pod_security=validate.pod_security)
    if validate.any_pattern is not None:
        moved = _nest_each(validate.any_pattern, nesting)
        return _keep(validate, nesting, "anyPattern", any_pattern=moved)
    if validate.foreach:
        return _keep(validate, nesting, "pattern", foreach=validate.foreach)
    if validate.cel is not None:
        return validate
    return _nest_assertion(validate, nesting)


def _nest_each(patterns: Json, nesting: Nesting) -> Json:
    # Anything but a list is a mistake, which the compiler of patterns reports.
    return [nesting.wrap(each) for each in patterns] if isinstance(patterns, list) else patterns


def _nest_assertion(validate: Validate, nesting: Nesting) -> Validate | None:
    if validate.assert_ is None:
        return None
    if not isinstance(validate.assert_, dict):
        return validate
    moved = {
        key: nesting.wrap(value)
        if key in ("object", "oldObject") and isinstance(value, dict)
        else value
        for key, value in validate.assert_.items()
    }
    return replace(validate, assert_=moved)


def _keep(validate: Validate, nesting: Nesting, body: str, /, **fields: Json) -> Validate:
    return Validate(
        message=_shift_references(validate.message, nesting, body)
        if "$(" in validate.message
        else validate.message,
        failure_action=validate.failure_action,
        failure_action_overrides=validate.failure_action_overrides,
        allow_existing_violations=validate.allow_existing_violations,
        **fields,
    )


def _shift_references(message: str, nesting: Nesting, body: str) -> str:
    """Move references to places in the rule, as old messages have: $(./../pattern/spec/x)"""
    # re: linear - fixed letters, and one repetition
    place = re.compile(rf"{body}/\w+" if body == "anyPattern" else body)
    shift = "/" + "/".join(nesting.path)

    def move(reference: str) -> str:
        return place.sub(lambda found: found.group() + shift, reference)

    return replace_references(message, move)


def _move_variables(rule: Rule, nesting: Nesting) -> Rule:
    """Let every text of the rule that speaks of the Pod's fields speak of the template's."""
    in_cel = rule.validate is not None and rule.validate.cel is not None
    prefix, template = ("" if in_cel else "request."), ".".join(nesting.path)
    moves = [
        (f"{prefix}{name}.{field}", f"{prefix}{name}.{template}.{field}")
        for field in ("spec", "metadata")
        for name in ("object", "oldObject")
    ]
    written = msgspec.json.encode(rule).decode()
    if not any(old in written for old, _ in moves):
        return rule
    moved: Rule = convert_record(_replace_texts(msgspec.to_builtins(rule), moves), Rule)
    return moved


def _replace_texts(value: Json, moves: list[tuple[str, str]]) -> Json:
    if isinstance(value, str):
        for old, new in moves:
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {_replace_texts(k, moves): _replace_texts(v, moves) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_texts(each, moves) for each in value]
    return value
