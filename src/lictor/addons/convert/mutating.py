"""Mutate rules as MutatingPolicies."""

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.body import plain_filler
from lictor.addons.convert.cel_tests import TRUE, Atom, Test, all_of, render
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.document import (
    RuleTrigger,
    find_trigger,
    fold,
    list_rules,
    split_made_name,
    write_failure_policy,
    write_metadata,
    write_timeout,
)
from lictor.addons.convert.overlay import PatchFields, read_overlay, split
from lictor.addons.convert.patching import (
    PatchWriter,
    can_merge,
    render_operations,
    write_merge,
    write_operation,
)
from lictor.addons.convert.plan import ConversionContext
from lictor.addons.convert.pod_templates import (
    choose_pod_path,
    pod_variables,
    share_paths,
    share_text,
)
from lictor.addons.convert.rule_group import are_distinct, match_kind, name_document
from lictor.addons.convert.selection import ResolvedKind, resource_rules
from lictor.addons.convert.simplify import simplify
from lictor.addons.convert.validating import API_VERSION
from lictor.addons.convert.writing import PolicyVariables
from lictor.core.errors import CompileError
from lictor.core.facts.merge_keys import find_shape
from lictor.core.lang.patch.kyverno_patch import parse_json_patch
from lictor.core.lang.template import has_variables
from lictor.core.model.policy import Mutate, Policy, Rule
from lictor.core.raw import JsonObject


class _MutationPart(msgspec.Struct, frozen=True):
    """One rule: its trigger, a further condition, and its mutations."""

    rule: str
    pod: tuple[str, ...] | None
    trigger: RuleTrigger
    gate: Test
    mutations: tuple[JsonObject, ...]


def convert_to_mutating(
    context: ConversionContext,
) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    parts = []
    for rule, pod in list_rules(context):
        if rule.mutate is None:
            continue
        try:
            parts.append(_convert_rule(rule, pod, context))
        except CompileError as error:
            raise CompileError(error.message, where=f"rule {rule.name}") from error
    groups = _merge_parts(parts) if context.short else _group_parts(parts)
    return tuple(_write_all(context.policy, groups)), ()


def _convert_rule(
    rule: Rule, pod: tuple[str, ...] | None, context: ConversionContext
) -> _MutationPart:
    mutate = rule.mutate
    if mutate is None:
        raise CompileError("not a mutate rule")
    if mutate.targets:
        raise CompileError("targets: objects that are there already")
    if mutate.foreach:
        raise CompileError("foreach in mutate has no equivalent")
    # The subject here is the whole object: patches contain their paths.
    trigger = find_trigger(rule, pod, PolicyVariables(inline=True), context)
    gate, mutations = _translate(mutate, trigger)
    return _MutationPart(rule.name, pod, trigger, gate, tuple(mutations))


def _translate(mutate: Mutate, trigger: RuleTrigger) -> tuple[Test, list[JsonObject]]:
    root = _root(trigger)
    if mutate.patch_strategic_merge is None:
        if has_variables(mutate.patches_json6902):
            raise CompileError("variables in a JSON patch")
        operations = parse_json_patch(mutate.patches_json6902)
        written = [write_operation(each, root, trigger.scope) for each in operations]
        return TRUE, [_json_patch(text) for text in written]
    patch = read_overlay(mutate.patch_strategic_merge, root, plain_filler(trigger.scope))
    if patch.node is None:
        raise CompileError("a patch that changes nothing")
    if trigger.scope.subject.shape.forms and can_merge(patch.node, root):
        text = write_merge(patch.node, root, "Object", trigger.scope)
        return patch.gate, [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
        ]
    written = [_write_operations(node, root, trigger) for node in split(patch.node)]
    return patch.gate, [_json_patch(text) for text in written]


def _root(trigger: RuleTrigger) -> CelValue:
    return CelValue("object", trigger.scope.subject.shape)


def _json_patch(text: str) -> JsonObject:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def _write_operations(node: PatchFields, root: CelValue, trigger: RuleTrigger) -> str:
    shapes = [find_shape({"apiVersion": k.api_version, "kind": k.kind}) for k in trigger.kinds]
    same = all(shape == shapes[0] for shape in shapes)
    if not same and not _is_templated(trigger.kinds):
        raise CompileError("kinds whose lists are merged in different ways")
    return render_operations(PatchWriter(trigger.scope).fields(node, root, '""', shapes[0]))


def _is_templated(kinds: tuple[ResolvedKind, ...]) -> bool:
    """Controllers differ only in fields that a patch of a Pod template does not contain."""
    return all(kind.group in ("apps", "batch", "") for kind in kinds)


# --- documents


def _write_all(policy: Policy, groups: list[list[_MutationPart]]) -> Iterator[JsonObject]:
    pods = [group[0].pod for group in groups]
    for group in groups:
        name = name_document(policy, group[0].rule, group[0].pod, pods)
        yield _write(policy, group, name)


def _write(policy: Policy, group: list[_MutationPart], name: str) -> JsonObject:
    trigger = group[0].trigger
    conditions = [{"name": key, "expression": fold(text)} for key, text in trigger.conditions]
    mutations = [each for part in group for each in part.mutations]
    if len(group) == 1 and group[0].gate != TRUE and "variables." not in render(group[0].gate):
        conditions.append({"name": "anchors", "expression": fold(render(group[0].gate))})
    else:
        mutations = [_gated(each, part.gate) for part in group for each in part.mutations]
    kinds = tuple(kind for kind in trigger.kinds if not kind.subresource or _sees_all(mutations))
    constraints: JsonObject = {
        **trigger.constraints,
        "resourceRules": resource_rules(kinds, trigger.operations),
    }
    spec: JsonObject = {
        **write_failure_policy(policy),
        **write_timeout(policy),
        "matchConstraints": constraints,
    }
    if conditions:
        spec["matchConditions"] = conditions
    variables = _list_variables([str(mutation) for mutation in mutations])
    if variables:
        spec["variables"] = [{"name": n, "expression": fold(t)} for n, t in variables.items()]
    if not policy.spec.background:
        spec["evaluation"] = {"background": {"enabled": False}}
    if [kind.path for kind in kinds] == ["pods"]:
        # Separate policies cover controllers, where the classic policy has such rules.
        spec["autogen"] = {"podControllers": {"controllers": []}}
    spec["mutations"] = [_fold(mutation) for mutation in mutations]
    prefix = "Namespaced" if policy.kind == "Policy" else ""
    return {
        "apiVersion": API_VERSION,
        "kind": f"{prefix}MutatingPolicy",
        "metadata": write_metadata(policy, name),
        "spec": spec,
    }


def _fold(mutation: JsonObject) -> JsonObject:
    field = _find_field(mutation)
    return {**mutation, field: {"expression": fold(mutation[field]["expression"])}}


def _find_field(mutation: JsonObject) -> str:
    return "jsonPatch" if "jsonPatch" in mutation else "applyConfiguration"


def _sees_all(mutations: list[JsonObject]) -> bool:
    """Of what is sent to a Pod's ephemeral containers, an API server takes only those."""
    return "ephemeralContainers" in str(mutations)


def _gated(mutation: JsonObject, gate: Test) -> JsonObject:
    if gate == TRUE:
        return mutation
    field = _find_field(mutation)
    nothing = "[]" if field == "jsonPatch" else "Object{}"
    text = f"({render(gate)}) ? {mutation[field]['expression']} : {nothing}"
    return {**mutation, field: {"expression": text}}


# --- which rules become one policy, and the conditions of each

_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_PATCHES = "jsonPatch"


def _group_parts(parts: list[_MutationPart]) -> list[list[_MutationPart]]:
    """The rules in groups that concern the same requests."""
    groups: list[list[_MutationPart]] = []
    for part in parts:
        same = next((group for group in groups if _agree(group[0], part)), None)
        if same is None:
            groups.append([part])
        else:
            same.append(part)
    return groups


def _agree(one: _MutationPart, other: _MutationPart) -> bool:
    mine, others = one.trigger, other.trigger
    return one.pod == other.pod and (
        mine.kinds,
        mine.operations,
        mine.conditions,
        mine.namespace_selector,
    ) == (others.kinds, others.operations, others.conditions, others.namespace_selector)


# --- as few as possible


def _merge_parts(parts: list[_MutationPart]) -> list[list[_MutationPart]]:
    """As few groups as possible: each mutation tests what not all of its group share."""
    families: list[list[_MutationPart]] = []
    for part in _share_all(parts):
        fitting = next((each for each in families if _can_join(each, part)), None)
        if fitting is None:
            families.append([part])
        else:
            fitting.append(part)
    return [_separate_parts(family) for family in families]


def _can_join(family: list[_MutationPart], other: _MutationPart) -> bool:
    return all(
        part.trigger.namespace_selector == other.trigger.namespace_selector
        and part.trigger.operations == other.trigger.operations
        and are_distinct(part.trigger.kinds, other.trigger.kinds)
        for part in family
    )


def _separate_parts(parts: list[_MutationPart]) -> list[_MutationPart]:
    if all(_agree(parts[0], part) for part in parts):
        return parts
    kinds = tuple(dict.fromkeys(kind for part in parts for kind in part.trigger.kinds))
    shared = _find_shared(parts)
    return [_add_conditions(part, kinds, shared) for part in parts]


def _find_shared(parts: list[_MutationPart]) -> tuple[tuple[str, str], ...]:
    first, *rest = (part.trigger.conditions for part in parts)
    return tuple(each for each in first if all(each in conditions for conditions in rest))


def _add_conditions(
    part: _MutationPart, kinds: tuple[ResolvedKind, ...], shared: tuple[tuple[str, str], ...]
) -> _MutationPart:
    """The part in a policy about more kinds, with fewer conditions."""
    trigger = part.trigger
    gate = all_of((*match_kind(trigger.kinds, kinds), *_list_own(part, shared), part.gate))
    return replace(
        part, pod=None, trigger=replace(trigger, kinds=kinds, conditions=shared), gate=gate
    )


def _list_own(part: _MutationPart, shared: tuple[tuple[str, str], ...]) -> list[Test]:
    conditions = part.trigger.conditions
    return [Atom(f"({text})") for name, text in conditions if (name, text) not in shared]


# --- one patch for Pods at any path


def _share_all(parts: list[_MutationPart]) -> list[_MutationPart]:
    families: dict[str, list[_MutationPart]] = {}
    for part in parts:
        families.setdefault(split_made_name(part.rule), []).append(part)
    made: list[_MutationPart] = []
    for family in families.values():
        one = _share(family) if len(family) > 1 else None
        made += family if one is None else [one]
    return made


def _share(family: list[_MutationPart]) -> _MutationPart | None:
    """One part for Pods and all that makes Pods; None where that would not do the same to all."""
    shared = _find_shared(family)
    made = [_name_pod(part, shared) for part in family]
    first = made[0]
    if any((part.gate, part.mutations) != (first.gate, first.mutations) for part in made):
        return None
    if any(_PATCHES not in mutation for mutation in first.mutations):
        return None
    kinds = tuple(dict.fromkeys(kind for part in family for kind in part.trigger.kinds))
    trigger = replace(first.trigger, kinds=kinds, conditions=shared)
    return replace(first, pod=None, trigger=trigger)


def _name_pod(part: _MutationPart, shared: tuple[tuple[str, str], ...]) -> _MutationPart:
    gate = simplify(all_of((*_list_own(part, shared), part.gate)))
    if gate != TRUE:
        gate = Atom(share_text(render(gate)))
    return replace(part, gate=gate, mutations=tuple(map(_name_pod_in, part.mutations)))


def _name_pod_in(mutation: JsonObject) -> JsonObject:
    if _PATCHES not in mutation:
        return mutation
    text = share_paths(share_text(mutation[_PATCHES]["expression"]))
    return {**mutation, _PATCHES: {"expression": text}}


def _list_variables(texts: list[str]) -> dict[str, str]:
    """The variables that expressions refer to."""
    used = {name for text in texts for name in _VARIABLE.findall(text)}
    known = {**pod_variables("object", is_strict=True), "podPath": choose_pod_path()}
    return {name: text for name, text in known.items() if name in used}
