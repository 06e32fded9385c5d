"""`mutate`: changes a resource, or an existing object that the request triggers."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.conditions import Conditions, compile_conditions, evaluate_conditions
from lictor.core.evaluate.context import Enter, compile_foreach_context
from lictor.core.evaluate.expressions import remember_compiled
from lictor.core.evaluate.namespace_bounds import check_same_object
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.evaluate.targets import ExistingTarget, compile_targets
from lictor.core.evaluate.validate import ElementNames
from lictor.core.lang.patch import (
    ConditionNotMet,
    compile_json_patch,
    compile_overlay,
    parse_json_patch,
)
from lictor.core.lang.template import CompiledDocument
from lictor.core.lang.written_size import check_written, measure_written
from lictor.core.model.policy import ForEachMutate, Mutate
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Result, Status
from lictor.core.model.scope import Scope
from lictor.core.raw import Json, JsonObject

# From variables and object to the changed object: the same object if nothing changes.
Change: TypeAlias = Callable[[Scope, JsonObject], JsonObject]

_SMALL_PATCH = 1024


def compile_mutate(mutate: Mutate, setting: RuleContext) -> Check:
    """The check of a mutate rule."""
    change = _compile_change(mutate, setting)
    if mutate.targets:
        return _compile_existing(mutate, change, setting)

    def check(case: Case) -> tuple[Result, ...]:
        before = case.request.object
        if before is None:
            return ()
        outcome, after = _apply(change, case.scope, before, is_loop=bool(mutate.foreach))
        result = setting.result(case, outcome)
        return (replace(result, patched=after) if outcome.status is Status.PASS else result,)

    return check


def _compile_existing(mutate: Mutate, change: Change, setting: RuleContext) -> Check:
    targets = compile_targets(mutate.targets, setting)

    def check(case: Case) -> tuple[Result, ...]:
        results = []
        for target in targets(case):
            outcome, after = _change_target(target, change, is_loop=bool(mutate.foreach))
            result = setting.result(case, outcome)
            if outcome.status is Status.PASS:
                result = replace(
                    result, target=after, part=target.part, is_selected=target.is_selected
                )
            results.append(result)
        return tuple(results)

    return check


def _change_target(
    target: ExistingTarget, change: Change, *, is_loop: bool
) -> tuple[RuleOutcome, JsonObject]:
    if target.conditions is not None:
        try:
            holds, text = evaluate_conditions(
                target.conditions, target.scope, "failed to evaluate preconditions"
            )
        except EvaluationError as error:
            return RuleOutcome(Status.ERROR, str(error)), target.object
        if not holds:
            skipped = "; ".join(filter(None, ("preconditions not met", text)))
            return RuleOutcome(Status.SKIP, skipped), target.object
    try:
        outcome, after = _apply(change, target.scope, target.object, is_loop=is_loop)
        check_same_object(target.object, after)
        return outcome, after
    except (EvaluationError, CompileError) as error:
        return RuleOutcome(Status.ERROR, str(error)), target.object


def _apply(
    change: Change, scope: Scope, before: JsonObject, *, is_loop: bool
) -> tuple[RuleOutcome, JsonObject]:
    after = change(scope, before)
    if is_loop:
        check_written(after)
    if after is before or after == before:
        text = "0 elements processed" if is_loop else "no patches applied"
        return RuleOutcome(Status.SKIP, text), before
    return RuleOutcome(Status.PASS, _describe(after)), after


def _describe(resource: JsonObject) -> str:
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    text = f"mutated {resource.get('kind')}/{metadata.get('name', '')}"
    namespace = metadata.get("namespace")
    return f"{text} in namespace {namespace}" if namespace else text


def _compile_change(mutate: Mutate, setting: RuleContext) -> Change:
    if mutate.foreach:
        return _compile_foreach(mutate.foreach, setting, "mutate")
    return _compile_patch(mutate, setting)


def _compile_patch(body: Mutate | ForEachMutate, setting: RuleContext) -> Change:
    if body.patch_strategic_merge is not None:
        document = setting.expressions.document(body.patch_strategic_merge)
        return _compile_filled(document, compile_overlay)
    if body.patches_json6902:
        document = setting.expressions.template(body.patches_json6902)
        return _compile_filled(document, _compile_json_patch_text)
    raise CompileError("empty mutate rule", where=setting.rule)


def _compile_json_patch_text(text: Json) -> Callable[[Json], Json]:
    if not isinstance(text, str):
        raise CompileError("patchesJson6902 must be text")
    return compile_json_patch(parse_json_patch(text))


def _compile_filled(
    document: CompiledDocument, compile_one: Callable[[Json], Callable[[Json], Json]]
) -> Change:
    """A patch that is compiled now, or per request if it has variables."""
    if document.is_constant:
        patch = compile_one(document.constant)
        if _can_multiply(document.constant):
            return lambda _, before: _measured(_patched(patch, before))
        return lambda _, before: _patched(patch, before)
    compile_filled = remember_compiled(compile_one)

    def change(scope: Scope, before: JsonObject) -> JsonObject:
        try:
            filled = document.fill(scope)
        except EvaluationError as error:
            raise EvaluationError(f"variable substitution failed: {error}") from error
        after = _patched(compile_filled(filled), before)
        return _measured(after) if _can_multiply(filled) else after

    return change


def _measured(after: JsonObject) -> JsonObject:
    check_written(after)
    return after


def _can_multiply(patch: Json) -> bool:
    """Whether it can make an object disproportionately large.

    It may be applied to every element of a list, and may copy; a small one is harmless.
    """
    if isinstance(patch, str):
        return len(patch) > _SMALL_PATCH or "copy" in patch
    return measure_written(patch) > _SMALL_PATCH


def _patched(patch: Callable[[Json], Json], before: JsonObject) -> JsonObject:
    try:
        after = patch(before)
    except ConditionNotMet:
        return before
    except EvaluationError as error:
        raise EvaluationError(f"failed to patch resource: {error}") from error
    if not isinstance(after, dict):
        raise EvaluationError("failed to patch resource: the patch leaves no object")
    return after


def _compile_foreach(blocks: Sequence[ForEachMutate], setting: RuleContext, where: str) -> Change:
    loops = [
        _Loop(block, setting, f"{where}.foreach[{index}]") for index, block in enumerate(blocks)
    ]

    def change(scope: Scope, before: JsonObject) -> JsonObject:
        after = before
        for loop in loops:
            changed = loop.run(scope, after)
            if changed is not after:
                after = changed
                # Later lists are read from the object as changed by the earlier ones.
                scope = scope.child(request={**scope["request"], "object": after})
        return after

    return change


class _Loop:
    """One entry of `foreach`, compiled."""

    def __init__(self, block: ForEachMutate, setting: RuleContext, where: str) -> None:
        self._list = setting.expressions.query(block.list)
        self._text = block.list
        self._nesting = where.count(".foreach[") - 1
        self._enter: Enter | None = compile_foreach_context(block.context, setting)
        self._conditions: Conditions | None = compile_conditions(
            block.preconditions,
            setting.expressions,
            watch=setting.watch,
            where=f"{where}.preconditions",
        )
        # Merge patches insert new list entries at the front, so the last element goes first.
        self._descending = (
            block.order == "Descending"
            if block.order is not None
            else block.patch_strategic_merge is not None
        )
        self._change: Change = (
            _compile_foreach(block.foreach, setting, where)
            if block.foreach
            else _compile_patch(block, setting)
        )

    def run(self, scope: Scope, before: JsonObject) -> JsonObject:
        try:
            found = self._list(scope)
        except EvaluationError as error:
            raise EvaluationError(f"failed to evaluate list {self._text}: {error}") from error
        elements = list(enumerate(found if isinstance(found, list) else [found]))
        after = before
        for index, element in reversed(elements) if self._descending else elements:
            if element is not None:
                after = self._change_one(scope, after, element, index)
        return after

    def _change_one(
        self, scope: Scope, before: JsonObject, element: Json, index: int
    ) -> JsonObject:
        inner = scope.child(**ElementNames.at(self._nesting).bind(element, index))
        if self._enter is not None:
            inner = self._enter(inner)
        if self._conditions is not None:
            what = f"failed to evaluate mutate.foreach[{index}].preconditions"
            if not evaluate_conditions(self._conditions, inner, what)[0]:
                return before
        return self._change(inner, before)
