"""`mutations`: expressions that make patches, and how their patches change an object."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lictor.compile.cel.conditions import Evaluate, Language
from lictor.errors import CompileError, EvaluationError
from lictor.lang.cel.activation import Activation
from lictor.lang.patch.apply_configuration import apply_configuration
from lictor.lang.patch.strict_json_patch import apply_json_patch
from lictor.lang.written_size import check_written
from lictor.model.admission import Mutation
from lictor.raw import Json, JsonObject

# What is seen when this is the object, and these are the values of variables that were kept.
See: TypeAlias = Callable[[JsonObject, JsonObject], Activation]
# What is seen, and the object, to the object as it shall be: the same where nothing changes.
Patch: TypeAlias = Callable[[Activation, JsonObject], JsonObject]
Change: TypeAlias = Callable[[Activation, JsonObject, See], JsonObject]

_OBJECT = ("Object",)
_OPERATIONS = ("list(JSONPatch)",)


def compile_mutations(mutations: Sequence[Mutation], language: Language) -> Change:
    """All changes, one after the other; each sees the object as those before it left it."""
    patches = [
        compile_mutation(mutation, language, index) for index, mutation in enumerate(mutations)
    ]

    def change(activation: Activation, before: JsonObject, see: See) -> JsonObject:
        seen = after = before
        for patch in patches:
            if after is not seen:
                activation, seen = see(after, {}), after
            after = patch(activation, after)
        return after

    return change


def compile_mutation(mutation: Mutation, language: Language, index: int) -> Patch:
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
    return _measure(_merge(evaluate))


def _measure(change: Patch) -> Patch:
    """Each change may put the whole object, as those before left it, into itself again."""

    def patch(activation: Activation, before: JsonObject) -> JsonObject:
        after = change(activation, before)
        check_written(after)
        return after

    return patch


def _merge(evaluate: Evaluate) -> Patch:
    def patch(activation: Activation, before: JsonObject) -> JsonObject:
        configuration = _settle(evaluate(activation))
        if not isinstance(configuration, dict):
            raise EvaluationError("the expression of an ApplyConfiguration must answer an Object")
        try:
            return apply_configuration(before, configuration)
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
    """CEL's doubles without decimals are whole numbers in JSON, as Go prints them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    if isinstance(value, dict):
        return {key: _settle(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_settle(inner) for inner in value]
    return value
