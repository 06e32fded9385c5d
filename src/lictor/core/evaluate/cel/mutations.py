"""`mutations`: expressions that make patches, and how their patches change an object."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.cel.expressions import UNDECIDED, Evaluate, ExpressionCompiler
from lictor.core.lang.cel.environment import Activation
from lictor.core.lang.cel.types import CelType
from lictor.core.lang.patch.apply_configuration import apply_configuration
from lictor.core.lang.patch.strict_json_patch import apply_json_patch
from lictor.core.lang.written_size import check_written
from lictor.core.model.cel_policy import MutatingSpec
from lictor.core.model.constraints import Mutation
from lictor.core.model.policy import CelVariable
from lictor.core.raw import Json, JsonObject

# What is seen when this is the object, and these are the values of variables that were kept.
See: TypeAlias = Callable[[JsonObject, JsonObject], Activation]
# What is seen, and the object, to the object as it shall be: the same where nothing changes.
Patch: TypeAlias = Callable[[Activation, JsonObject], JsonObject]
Change: TypeAlias = Callable[[Activation, JsonObject, See], JsonObject]

_OBJECT = ("Object",)
_OPERATIONS = ("list(JSONPatch)",)


def compile_mutations(mutations: Sequence[Mutation], language: ExpressionCompiler) -> Change:
    """All changes, one after the other; each sees the object as those before it left it."""
    if not mutations:
        # The field may be misspelt: the policy must not look like one that has changed something.
        raise CompileError("mutations: expected at least one, found none")
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


def compile_mutation(mutation: Mutation, language: ExpressionCompiler, index: int) -> Patch:
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


# Where the values stand that are kept: no author has a name of his own there.
_PLACE = "exceptions.kept"
_USE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")
# What can leave the engine and come back as it was.
_STORABLE = frozenset(("bool", "int", "double", "string", "dyn", "list", "map"))


def compile_remembering(spec: MutatingSpec, plain: ExpressionCompiler) -> Change:
    """All changes of a policy; the language is that of the policy without its variables."""
    language = plain.declare(spec.variables)
    stages = _plan(spec, language)
    if not any(stage.kept for stage in stages):
        return compile_mutations(spec.mutations, language)
    steps = tuple(
        _compile_step(mutation, stage, index, (plain, language), spec.variables)
        for index, (mutation, stage) in enumerate(zip(spec.mutations, stages, strict=True))
    )
    return lambda activation, before, see: _run(steps, activation, before, see)


class _Stage(msgspec.Struct, frozen=True):
    """What is known when a mutation begins, and what becomes known with it."""

    kept: frozenset[str]
    new: frozenset[str]


class _Step(msgspec.Struct, frozen=True):
    """A mutation, once with kept variables and once without, and what to keep before it runs."""

    patch: Patch
    fresh: Patch
    keep: tuple[tuple[str, Evaluate], ...]


def _plan(spec: MutatingSpec, language: ExpressionCompiler) -> list[_Stage]:
    texts = {variable.name: variable.expression for variable in spec.variables}
    declared = language.variables.declared
    storable = {name for name, variable in declared.items() if _is_storable(variable.slot[0])}
    uses = [_uses(_text_of(mutation), texts) for mutation in spec.mutations]
    asked: set[str] = set()
    for condition in spec.match_conditions:
        asked |= _uses(condition.expression, texts)
    kept: set[str] = set()
    stages = []
    for index, used in enumerate(uses):
        needed_later = set[str]().union(*uses[index + 1 :])
        new = (used | (asked if index == 0 else set())) & needed_later & storable - kept
        stages.append(_Stage(frozenset(kept), frozenset(new)))
        kept |= new
    return stages


def _is_storable(kind: CelType) -> bool:
    return kind.name in _STORABLE and all(map(_is_storable, kind.parameters))


def _text_of(mutation: Mutation) -> str:
    is_json = mutation.patch_type == "JSONPatch"
    patch = mutation.json_patch if is_json else mutation.apply_configuration
    return "" if patch is None else patch.expression


def _uses(text: str, texts: dict[str, str]) -> set[str]:
    """The variables that a text names, and those that these name in turn."""
    found: set[str] = set()
    todo = set(_USE.findall(text)) & texts.keys()
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= (set(_USE.findall(texts[name])) & texts.keys()) - found
    return found


def _compile_step(
    mutation: Mutation,
    stage: _Stage,
    index: int,
    languages: tuple[ExpressionCompiler, ExpressionCompiler],
    variables: Sequence[CelVariable],
) -> _Step:
    plain, language = languages
    knowing = plain.declare(_remembered(variables, stage.kept)) if stage.kept else language
    fresh = compile_mutation(mutation, language, index)
    return _Step(
        patch=compile_mutation(mutation, knowing, index) if stage.kept else fresh,
        fresh=fresh,
        keep=tuple((name, _reader(name, knowing)) for name in sorted(stage.new)),
    )


def _remembered(variables: Sequence[CelVariable], kept: frozenset[str]) -> Iterator[CelVariable]:
    for variable in variables:
        if variable.name in kept:
            yield replace(variable, expression=f"{_PLACE}.{variable.name}")
        else:
            yield variable


def _reader(name: str, language: ExpressionCompiler) -> Evaluate:
    types = (str(language.variables.declared[name].slot[0]),)
    return language.evaluator(f"variables.{name}", types, f"variables.{name}")


def _run(
    steps: tuple[_Step, ...], activation: Activation, before: JsonObject, see: See
) -> JsonObject:
    after = before
    kept: JsonObject = {}
    is_fresh = False
    for index, step in enumerate(steps):
        if index:
            activation = see(after, kept)
        try:
            kept = {**kept, **{name: read(activation) for name, read in step.keep}}
        except UNDECIDED:
            # One that is guarded and not asked for now. It may well have a value later.
            is_fresh = True
        after = (step.fresh if is_fresh and index else step.patch)(activation, after)
    return after
