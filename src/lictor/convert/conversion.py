"""A classic policy in, CEL policies out: which kinds of documents does it become?"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from lictor.convert.plan import Ground
from lictor.errors import CompileError
from lictor.lang.resource_names import ResourceNames
from lictor.model.policy import Policy
from lictor.raw import JsonObject


class Target(StrEnum):
    """What a policy shall become."""

    AUTO = "auto"
    VALIDATING = "ValidatingPolicy"
    MUTATING = "MutatingPolicy"
    GENERATING = "GeneratingPolicy"
    ADMISSION = "ValidatingAdmissionPolicy"


class Conversion(msgspec.Struct, frozen=True):
    """The documents, and what is to be said of them."""

    documents: tuple[JsonObject, ...]
    notes: tuple[str, ...] = ()


_DOES = {
    Target.VALIDATING: "validate",
    Target.ADMISSION: "validate",
    Target.MUTATING: "mutate",
    Target.GENERATING: "generate",
}


def convert_policy(
    policy: Policy, target: Target, names: ResourceNames, groups: Iterable[str] = ()
) -> Conversion:
    """Convert a policy; CompileError says what in it has no equivalent."""
    try:
        return _convert(policy, target, Ground(policy, names, tuple(groups)))
    except RecursionError as error:
        raise CompileError("nested too deeply", where=policy.metadata.name) from error


def _convert(policy: Policy, target: Target, ground: Ground) -> Conversion:
    _refuse_settings(policy)
    does = _list_actions(policy)
    if target is not Target.AUTO and does != {_DOES[target]}:
        raise CompileError(f"a {target} can only {_DOES[target]}, but rules here {_join(does)}")
    parts = [_PARTS[action](ground, target) for action in sorted(does)]
    return Conversion(
        tuple(document for part in parts for document in part.documents),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _join(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))


def _list_actions(policy: Policy) -> set[str]:
    found = set()
    for rule in policy.spec.rules:
        if rule.verify_images:
            raise CompileError("verifyImages: signatures belong to ImageValidatingPolicy")
        bodies = {"validate": rule.validate, "mutate": rule.mutate, "generate": rule.generate}
        found |= {name for name, body in bodies.items() if body is not None}
    if not found:
        raise CompileError("no rule does anything")
    return found


def _refuse_settings(policy: Policy) -> None:
    spec = policy.spec
    if spec.apply_rules == "One" and len(spec.rules) > 1:
        raise CompileError("applyRules: One: CEL policies cannot stop after the first rule")
    if spec.validation_failure_action_overrides or any(
        rule.validate is not None and rule.validate.failure_action_overrides for rule in spec.rules
    ):
        raise CompileError("failureActionOverrides: a CEL policy has one action for all namespaces")
    if any(rule.image_extractors for rule in spec.rules):
        raise CompileError("imageExtractors have no equivalent")


def _validating(ground: Ground, target: Target) -> Conversion:
    if target is Target.ADMISSION:
        from lictor.convert.admission import convert_to_admission

        return Conversion(*convert_to_admission(ground))
    from lictor.convert.validating import convert_to_validating

    return Conversion(*convert_to_validating(ground))


def _mutating(ground: Ground, _target: Target) -> Conversion:
    from lictor.convert.mutating import convert_to_mutating

    return Conversion(*convert_to_mutating(ground))


def _generating(ground: Ground, _target: Target) -> Conversion:
    from lictor.convert.generating import convert_to_generating

    return Conversion(*convert_to_generating(ground))


_PARTS = {"validate": _validating, "mutate": _mutating, "generate": _generating}
