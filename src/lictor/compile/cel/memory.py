"""Variables of a MutatingPolicy keep the value that they had when they were first used.

Later mutations see the object as earlier ones left it, but variables as they were: so it is with
Kyverno, and authors rely on it where they compute the places of several patches from one list.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from lictor.compile.cel.conditions import UNDECIDED, Evaluate, Language
from lictor.compile.cel.mutations import Change, Patch, See, compile_mutation, compile_mutations
from lictor.lang.cel.activation import Activation
from lictor.lang.cel.kinds import Kind
from lictor.model.admission import Mutation
from lictor.model.cel_policy import MutatingSpec
from lictor.model.policy import CelVariable
from lictor.raw import JsonObject

# Where the values stand that are kept: no author has a name of his own there.
_PLACE = "exceptions.kept"
_USE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")
# What can leave the engine and come back as it was.
_STORABLE = frozenset(("bool", "int", "double", "string", "dyn", "list", "map"))


def compile_remembering(spec: MutatingSpec, plain: Language) -> Change:
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


def _plan(spec: MutatingSpec, language: Language) -> list[_Stage]:
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


def _is_storable(kind: Kind) -> bool:
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
    languages: tuple[Language, Language],
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


def _reader(name: str, language: Language) -> Evaluate:
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
