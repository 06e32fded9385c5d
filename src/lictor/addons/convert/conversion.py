"""A classic policy in, CEL policies out: which kinds of documents does it become?"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.plan import ConversionContext, PolicyForm
from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.model.policy import Policy
from lictor.core.raw import JsonObject


class ConversionTarget(StrEnum):
    """What a policy shall become."""

    AUTO = "auto"
    VALIDATING = "ValidatingPolicy"
    MUTATING = "MutatingPolicy"
    GENERATING = "GeneratingPolicy"
    ADMISSION = "ValidatingAdmissionPolicy"


class Conversion(msgspec.Struct, frozen=True):
    """The documents, and notes about them."""

    documents: tuple[JsonObject, ...]
    notes: tuple[str, ...] = ()


_DOES = {
    ConversionTarget.VALIDATING: "validate",
    ConversionTarget.ADMISSION: "validate",
    ConversionTarget.MUTATING: "mutate",
    ConversionTarget.GENERATING: "generate",
}


def list_conversions(
    policy: Policy, target: ConversionTarget, names: ResourceNames, groups: Iterable[str] = ()
) -> list[Conversion]:
    """The forms that a policy can take, the shortest first."""
    context = ConversionContext(policy, names, tuple(groups))
    try:
        forms = [_convert(policy, target, replace(context, form=form)) for form in PolicyForm]
    except RecursionError as error:
        raise CompileError("nested too deeply", where=policy.metadata.name) from error
    return [form for index, form in enumerate(forms) if form not in forms[:index]]


def _convert(policy: Policy, target: ConversionTarget, context: ConversionContext) -> Conversion:
    from lictor.addons.convert.generating import convert_to_generating
    from lictor.addons.convert.mutating import convert_to_mutating
    from lictor.addons.convert.validating import convert_to_admission, convert_to_validating

    is_admission = target is ConversionTarget.ADMISSION
    converters = {
        "validate": convert_to_admission if is_admission else convert_to_validating,
        "mutate": convert_to_mutating,
        "generate": convert_to_generating,
    }
    _refuse_settings(policy)
    does = _list_actions(policy)
    if target is not ConversionTarget.AUTO and does != {_DOES[target]}:
        raise CompileError(f"a {target} can only {_DOES[target]}, but rules here {_join(does)}")
    parts = [converters[action](context) for action in sorted(does)]
    return Conversion(
        tuple(document for documents, _ in parts for document in documents),
        tuple(dict.fromkeys(note for _, notes in parts for note in notes)),
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
