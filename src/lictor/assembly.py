"""Policies in, programs out: the one way in which the command line, servers and users come in."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from lictor.compile.autogen import expand_rules
from lictor.compile.classic import Surroundings, compile_policies
from lictor.compile.cleanup import CleanupProgram, compile_cleanup
from lictor.engine import Adapt, Engine
from lictor.errors import LoadError
from lictor.evaluate.expressions import Expressions
from lictor.lang.watch import Heard, Recorder, WatchRule, watch_nothing
from lictor.load.policies import Loaded, load_documents
from lictor.load.problem import Problem, Severity
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.policy import Policy, Rule
from lictor.model.program import Program
from lictor.model.request import Request
from lictor.model.result import Verdict
from lictor.ports import Lookups, NoLookups

_ENDINGS = (".yaml", ".yml", ".json")


def compile_documents(
    policies: Iterable[Policy],
    *,
    exceptions: Sequence[PolicyException] = (),
    lookups: Lookups | None = None,
    watch_rule: WatchRule = watch_nothing,
) -> tuple[Program, ...]:
    """Compile policies together with the exceptions from them."""
    return compile_policies(policies, _surround(exceptions, lookups, watch_rule))


def compile_cleanups(
    cleanups: Iterable[CleanupPolicy], *, lookups: Lookups | None = None
) -> tuple[CleanupProgram, ...]:
    """Compile cleanup policies."""
    around = _surround((), lookups, watch_nothing)
    return tuple(compile_cleanup(cleanup, around) for cleanup in cleanups)


def load_policies(*paths: str | Path, lookups: Lookups | None = None) -> tuple[Program, ...]:
    """Read policies, and exceptions from them, from files and folders, ready for an Engine.

    Raises LoadError where a file cannot be read or holds a document that is no policy we know; the
    text names every problem with file, line and field.
    """
    loaded = Loaded()
    for path in paths:
        for file in _find_files(Path(path)):
            loaded += load_documents(_read(file), str(file))
    _refuse_errors(loaded.problems)
    return compile_documents(
        [sourced.record for sourced in loaded.policies],
        exceptions=[sourced.record for sourced in loaded.exceptions],
        lookups=lookups,
    )


class Told(msgspec.Struct, frozen=True):
    """What a policy said of a request, and what each of its parts answered on the way."""

    verdict: Verdict
    rules: tuple[Rule, ...]
    heard: tuple[Heard, ...]


def explain(
    policy: Policy,
    request: Request,
    *,
    exceptions: Sequence[PolicyException] = (),
    lookups: Lookups | None = None,
    adapt: Adapt | None = None,
) -> Told:
    """Judge a request by one policy while listening to every closure of it."""
    recorder = Recorder()
    programs = compile_documents(
        [policy], exceptions=exceptions, lookups=lookups, watch_rule=recorder.for_rule
    )
    verdict = Engine(programs).evaluate(request, adapt=adapt)
    return Told(verdict, expand_rules(policy), tuple(recorder.heard))


def _surround(
    exceptions: Sequence[PolicyException], lookups: Lookups | None, watch_rule: WatchRule
) -> Surroundings:
    world = lookups if lookups is not None else NoLookups()
    return Surroundings(Expressions(world.now), world, tuple(exceptions), watch_rule)


def _find_files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from sorted(p for p in path.rglob("*") if p.suffix in _ENDINGS and p.is_file())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=str(path)) from error


def _refuse_errors(problems: Iterable[Problem]) -> None:
    errors = [str(problem) for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        raise LoadError("\n".join(errors))
