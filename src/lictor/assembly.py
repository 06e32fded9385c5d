"""Policies in, programs out: the one way in which the command line, servers and users come in."""

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import msgspec
import orjson

from lictor.compile.autogen import expand_rules
from lictor.compile.classic import Surroundings, compile_failing, compile_policies
from lictor.compile.cleanup import CleanupProgram, compile_cleanup
from lictor.engine import Adapt, Engine
from lictor.errors import LictorError, LoadError, UsageError
from lictor.evaluate.expressions import Expressions
from lictor.files import is_object_file, list_files, read_bytes
from lictor.lang.watch import Heard, Recorder, WatchRule, watch_nothing
from lictor.load.policies import Loaded, load_documents, refuse_errors
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.policy import Policy, Rule
from lictor.model.program import Program
from lictor.model.request import Request
from lictor.model.result import Verdict
from lictor.ports import HttpLimits, Lookups, NoLookups
from lictor.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.evaluate.cel.context import CelContext
    from lictor.lang.resource_names import ResourceNames
    from lictor.model.admission import AdmissionPolicy, Binding
    from lictor.model.cel_policy import CelException, CelPolicy


class CelDocuments(TypedDict, total=False):
    """Policies in CEL, and what belongs to them."""

    admission_policies: "Sequence[AdmissionPolicy]"
    bindings: "Sequence[Binding]"
    cel_policies: "Sequence[CelPolicy]"
    cel_exceptions: "Sequence[CelException]"
    # Parameter objects given by hand; left out, the cluster is asked for them.
    params: Sequence[JsonObject]
    # The names of resources, with those of given CRDs; left out, those of Kubernetes' own kinds.
    resource_names: "ResourceNames"
    # Where expressions may make HTTP calls to; left out, nowhere inside.
    http_limits: HttpLimits


def compile_documents(
    policies: Iterable[Policy],
    *,
    exceptions: Sequence[PolicyException] = (),
    lookups: Lookups | None = None,
    watch_rule: WatchRule = watch_nothing,
    **cel: Unpack[CelDocuments],
) -> tuple[Program, ...]:
    """Compile policies together with the exceptions from them."""
    world = lookups if lookups is not None else NoLookups()
    surround_cel = _surround_cel(cel, world, watch_rule)
    around = Surroundings(
        Expressions(world.now), world, tuple(exceptions), watch_rule, surround_cel
    )
    others = (*cel.get("admission_policies", ()), *cel.get("cel_policies", ()))
    with _keeping_garbage():
        programs = compile_policies(policies, around)
        if not others:
            return programs
        from lictor.compile.cel import compile_cel_policies

        return (*programs, *compile_cel_policies(others, surround_cel()))


@contextmanager
def _keeping_garbage() -> Iterator[None]:
    """Programs are many closures that all stay: to look through them again and again for some that
    do not takes more time than everything else.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def fail_policy(
    policy: "Policy | CelPolicy", error: LictorError, **cel: Unpack[CelDocuments]
) -> tuple[Program, ...]:
    """Programs that answer with an error where the policy would be asked, without compiling it."""
    world = NoLookups()
    if isinstance(policy, Policy):
        return (compile_failing(policy, error, Surroundings(Expressions(world.now), world)),)
    from lictor.compile.cel.failing import fail_cel_policy

    return fail_cel_policy(policy, error, _surround_cel(cel, world, watch_nothing)())


def compile_cleanups(
    cleanups: Iterable[CleanupPolicy],
    *,
    lookups: Lookups | None = None,
    watch_rule: WatchRule = watch_nothing,
    **cel: Unpack[CelDocuments],
) -> tuple[CleanupProgram, ...]:
    """Compile cleanup policies, and the DeletingPolicies among `cel_policies`."""
    world = lookups if lookups is not None else NoLookups()
    around = Surroundings(Expressions(world.now), world)
    programs = tuple(compile_cleanup(cleanup, around) for cleanup in cleanups)
    if not any(policy.kind.endswith("DeletingPolicy") for policy in cel.get("cel_policies", ())):
        return programs
    from lictor.compile.cel.deleting import compile_deleting
    from lictor.model.cel_policy import DeletingPolicy

    around_cel = _surround_cel(cel, world, watch_rule)()
    deleting = (p for p in cel.get("cel_policies", ()) if isinstance(p, DeletingPolicy))
    return (*programs, *(compile_deleting(policy, around_cel) for policy in deleting))


def load_policies(*paths: str | Path, lookups: Lookups | None = None) -> tuple[Program, ...]:
    """Read policies, and exceptions from them, from files and folders, ready for an Engine.

    Documents that are no policies are left out. Raises LoadError where a file cannot be read, or
    holds a policy that is wrong or that nothing here can run, and where there are no policies at
    all; the text names every problem with file, line and field.
    """
    loaded = Loaded()
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            found = type(path).__name__
            raise UsageError(
                f"load_policies takes paths, not {found}; parse_policies takes documents"
            )
        for file in list_files(os.fspath(path), is_object_file):
            loaded += load_documents(read_bytes(file), file)
    return _compile_loaded(loaded, ", ".join(map(str, paths)), lookups)


def parse_policies(
    *documents: str | bytes | Mapping[str, Json], lookups: Lookups | None = None
) -> tuple[Program, ...]:
    """Policies, and exceptions from them, given as YAML or JSON text or as dicts.

    As `load_policies`; in errors, the first argument is called `document 1`.
    """
    loaded = Loaded()
    for number, document in enumerate(documents, 1):
        source = f"document {number}"
        loaded += load_documents(_write_text(document, source), source)
    return _compile_loaded(loaded, "what was given", lookups)


def _write_text(document: str | bytes | Mapping[str, Json], source: str) -> str | bytes:
    if isinstance(document, str | bytes):
        return document
    try:
        if isinstance(document, Mapping):
            return orjson.dumps(dict(document))
    except (TypeError, ValueError) as error:
        raise LoadError(f"is not JSON ({error})", where=source) from error
    raise UsageError(f"a document is text or a dict, not {type(document).__name__}")


def _compile_loaded(loaded: Loaded, where: str, lookups: Lookups | None) -> tuple[Program, ...]:
    refuse_errors(loaded)
    if not (loaded.policies or loaded.admission_policies or loaded.cel_policies):
        # Without policies everything would be allowed.
        raise LoadError("there are no policies", where=where)
    return compile_documents(
        [sourced.record for sourced in loaded.policies],
        exceptions=[sourced.record for sourced in loaded.exceptions],
        lookups=lookups,
        admission_policies=[sourced.record for sourced in loaded.admission_policies],
        bindings=[sourced.record for sourced in loaded.bindings],
        cel_policies=[sourced.record for sourced in loaded.cel_policies],
        cel_exceptions=[sourced.record for sourced in loaded.cel_exceptions],
    )


class Told(msgspec.Struct, frozen=True):
    """What a policy said of a request, and what each of its parts answered on the way."""

    verdict: Verdict
    # Those of a classic policy, with the ones that were made from them.
    rules: tuple[Rule, ...]
    heard: tuple[Heard, ...]


def explain(
    policy: "Policy | AdmissionPolicy | CelPolicy",
    request: Request,
    *,
    exceptions: Sequence[PolicyException] = (),
    lookups: Lookups | None = None,
    adapt: Adapt | None = None,
    **cel: Unpack[CelDocuments],
) -> Told:
    """Judge a request by one policy while listening to every closure of it."""
    recorder = Recorder()
    classic: tuple[Policy, ...] = ()
    rules: tuple[Rule, ...] = ()
    if isinstance(policy, Policy):
        classic, rules = (policy,), expand_rules(policy)
    elif policy.kind.endswith("AdmissionPolicy"):
        cel["admission_policies"] = (cast("AdmissionPolicy", policy),)
    else:
        cel["cel_policies"] = (cast("CelPolicy", policy),)
    programs = compile_documents(
        classic, exceptions=exceptions, lookups=lookups, watch_rule=recorder.for_rule, **cel
    )
    verdict = Engine(programs).evaluate(request, adapt=adapt)
    return Told(verdict, rules, tuple(recorder.heard))


def _surround_cel(
    cel: CelDocuments, lookups: Lookups, watch_rule: WatchRule
) -> "Callable[[], CelContext]":
    """What CEL needs, made when the first policy asks: the engine of that language is heavy."""
    made: list[CelContext] = []

    def surround() -> "CelContext":
        if not made:
            from lictor.evaluate.cel.context import CelContext
            from lictor.lang.resource_names import builtin_names

            params = cel.get("params")
            surroundings = CelContext(
                lookups,
                cel.get("resource_names") or builtin_names(),
                bindings=tuple(cel.get("bindings", ())),
                exceptions=tuple(cel.get("cel_exceptions", ())),
                params=None if params is None else tuple(params),
                watch_rule=watch_rule,
                http_limits=cel.get("http_limits") or HttpLimits(),
            )
            made.append(surroundings)
        return made[0]

    return surround
