"""`mutations`: expressions that return patches, and how these change an object."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.cel.expressions import Evaluate, ExpressionCompiler
from lictor.core.lang.cel.expression import Activation
from lictor.core.lang.patch.apply_configuration import apply_configuration
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.lang.written_size import check_written
from lictor.core.model.constraints import Mutation
from lictor.core.raw import Json, JsonObject

# The variables for this object.
See: TypeAlias = Callable[[JsonObject], Activation]
# From variables and object to the changed object: the same object if nothing changes.
Patch: TypeAlias = Callable[[Activation, JsonObject], JsonObject]
Change: TypeAlias = Callable[[Activation, JsonObject, See], JsonObject]

_OBJECT = ("Object",)
_OPERATIONS = ("list(JSONPatch)",)


def compile_mutations(
    mutations: Sequence[Mutation],
    language: ExpressionCompiler,
    *,
    keeps_variables: bool = False,
    replaces_atomic: bool = False,
) -> Change:
    """All changes in order; each sees the result of the previous ones.

    `keeps_variables`: a variable that was computed keeps its value, as in Kyverno.
    `replaces_atomic`: an ApplyConfiguration replaces atomic lists and maps, instead of an error.
    """
    if not mutations:
        # The field may be misspelt: the policy must not appear to have changed something.
        raise CompileError("mutations: expected at least one, found none")
    patches = [
        compile_mutation(mutation, language, index, replaces_atomic=replaces_atomic)
        for index, mutation in enumerate(mutations)
    ]

    def change(activation: Activation, before: JsonObject, see: See) -> JsonObject:
        seen = after = before
        for patch in patches:
            if after is not seen:
                changed, seen = see(after), after
                if keeps_variables:
                    changed.keep_variables(activation)
                activation = changed
            after = patch(activation, after)
        return after

    return change


def compile_mutation(
    mutation: Mutation, language: ExpressionCompiler, index: int, *, replaces_atomic: bool = False
) -> Patch:
    """One change."""
    where = f"mutations[{index}]"
    if mutation.patch_type == "JSONPatch":
        if mutation.json_patch is None:
            raise CompileError("a patch of type JSONPatch needs `jsonPatch`", where=where)
        text = mutation.json_patch.expression
        evaluate = language.evaluator(text, _OPERATIONS, f"{where}.jsonPatch.expression")
        return _measure(_patch_json(evaluate))
    if mutation.apply_configuration is None:
        raise CompileError(
            "a patch of type ApplyConfiguration needs `applyConfiguration`", where=where
        )
    text = mutation.apply_configuration.expression
    evaluate = language.evaluator(text, _OBJECT, f"{where}.applyConfiguration.expression")
    return _measure(_merge(evaluate, replaces_atomic=replaces_atomic))


def _measure(change: Patch) -> Patch:
    """Each change may embed the whole object, as left by the previous ones, in itself."""

    def patch(activation: Activation, before: JsonObject) -> JsonObject:
        after = change(activation, before)
        check_written(after)
        return after

    return patch


def _merge(evaluate: Evaluate, *, replaces_atomic: bool) -> Patch:
    def patch(activation: Activation, before: JsonObject) -> JsonObject:
        configuration = _settle(evaluate(activation))
        if not isinstance(configuration, dict):
            raise EvaluationError("the expression of an ApplyConfiguration must answer an Object")
        try:
            return apply_configuration(before, configuration, replaces_atomic=replaces_atomic)
        except EvaluationError as error:
            raise EvaluationError(f"error applying patch: {error}") from error

    return patch


def _patch_json(evaluate: Evaluate) -> Patch:
    def patch(activation: Activation, before: JsonObject) -> JsonObject:
        operations = _settle(evaluate(activation))
        if not isinstance(operations, list):
            raise EvaluationError("the expression of a JSONPatch must answer a list of JSONPatch")
        try:
            after = apply_json_patch(before, operations)
        except EvaluationError as error:
            raise EvaluationError(f"JSON Patch: {error}") from error
        if not isinstance(after, dict) or not after.get("kind"):
            raise EvaluationError("JSON Patch: Object 'Kind' is missing")
        return after

    return patch


def _settle(value: Json) -> Json:
    """CEL doubles without a fraction become integers in JSON, as Go prints them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    if isinstance(value, dict):
        return {key: _settle(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_settle(inner) for inner in value]
    return value
