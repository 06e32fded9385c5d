"""Compiles policies to programs: the entry point of the command line, servers and library users."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import msgspec
import orjson

from lictor.core.compile.context import CompileContext
from lictor.core.engine import Adapt, Engine
from lictor.core.errors import LictorError, LoadError, UsageError
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.files import is_object_file, list_files, read_bytes
from lictor.core.garbage import keeping_garbage
from lictor.core.lang.template import Fill
from lictor.core.lang.wasm_module import Modules, NoModules
from lictor.core.lang.watch import ClosureAnswer, Recorder, WatchRule
from lictor.core.load.policies import Loaded, join_loaded, load_documents, refuse_errors
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import CleanupProgram, Program
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.ports import HttpLimits, Lookups, NoLookups
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.core.facts.resource_names import ResourceNames


class CompileOptions(TypedDict, total=False):
    """Compile options besides the documents."""

    # External data for policies; default: none.
    lookups: Lookups | None
    watch_rule: WatchRule
    # Parameter objects given explicitly; default: they are read from the cluster.
    params: Sequence[JsonObject]
    # The names of resources, with those of given CRDs; default: Kubernetes' built-in kinds.
    resource_names: "ResourceNames"
    # Permitted destinations of HTTP calls from expressions; default: no internal address.
    http_limits: HttpLimits
    # Cache of image verifications; default: one for these programs.
    image_outcomes: OutcomeCache
    # Queries already compiled with the same lookups, by their text; default: none.
    queries: dict[str, Fill]
    # Source of the modules of Wasm policies; default: none.
    modules: Modules
    # Compile each check at the first request that needs it; default: at once.
    is_lazy: bool
    # The release whose CEL admission policies use; default: the newest.
    kubernetes_version: tuple[int, int] | None


def compile_documents(
    documents: Iterable[PolicyRecord], **options: Unpack[CompileOptions]
) -> tuple[Program, ...]:
    """Compile the policies among the documents, with the exceptions and bindings among them."""
    context = _make_context(documents, options)
    with keeping_garbage():
        return tuple(
            kind.family.compile(record, context)
            for kind, record in _list_with_role(Role.POLICY, context)
        )


def compile_cleanups(
    documents: Iterable[PolicyRecord], **options: Unpack[CompileOptions]
) -> tuple[CleanupProgram, ...]:
    """Compile the cleanup policies among the documents."""
    context = _make_context(documents, options)
    return tuple(
        kind.family.compile_cleanup(record, context)
        for kind, record in _list_with_role(Role.DELETION, context)
    )


def fail_policy(
    policy: PolicyRecord, error: LictorError, **options: Unpack[CompileOptions]
) -> tuple[Program, ...]:
    """Build programs that answer every matching request with an error, without compiling."""
    kind = registry().of(policy)
    if kind.role is not Role.POLICY:
        return ()
    context = _make_context((policy,), options)
    return (kind.family.compile_failing(policy, error, context),)


def _make_context(documents: Iterable[PolicyRecord], options: CompileOptions) -> CompileContext:
    params = options.get("params")
    made = CompileContext(
        options.get("lookups") or NoLookups(),
        tuple(documents),
        None if params is None else tuple(params),
        options.get("resource_names"),
        options.get("http_limits") or HttpLimits(),
        kept_outcomes=options.get("image_outcomes"),
        modules=options.get("modules") or NoModules(),
        is_lazy=options.get("is_lazy", False),
        queries=options.get("queries", {}),
        kubernetes_version=options.get("kubernetes_version"),
    )
    watch_rule = options.get("watch_rule")
    return made if watch_rule is None else msgspec.structs.replace(made, watch_rule=watch_rule)


def _list_with_role(
    role: Role, context: CompileContext
) -> Iterator[tuple[PolicyKind, PolicyRecord]]:
    """The documents with a role, in the order of their families."""
    known = registry()
    chosen = [(known.of(record), record) for record in context.documents]
    chosen = [(kind, record) for kind, record in chosen if kind.role is role]
    if len(chosen) > 1:
        chosen.sort(key=lambda each: known.order(each[0]))
    yield from chosen


class PolicyEngine(Engine):
    """The `Engine` of the public API: requires programs. Servers start without any."""

    def __init__(self, programs: Iterable[Program], **options: Any) -> None:
        super().__init__(programs, **options)
        if not self.programs:
            raise UsageError("an Engine without programs would allow everything: see load_policies")


def load_policies(*paths: str | Path, lookups: Lookups | None = None) -> tuple[Program, ...]:
    """Read policies and their exceptions from files and folders, ready for an Engine.

    Other documents are skipped. Raises LoadError if a file cannot be read, a policy is invalid or
    not supported, or no policy is found; the message lists every problem with file, line and field.
    """
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            found = type(path).__name__
            raise UsageError(
                f"load_policies takes paths, not {found}; parse_policies takes documents"
            )
    files = (file for path in paths for file in list_files(os.fspath(path), is_object_file))
    with keeping_garbage():
        loaded = join_loaded(load_documents(read_bytes(file), file) for file in files)
    return _compile_loaded(loaded, ", ".join(map(str, paths)), lookups)


def parse_policies(
    *documents: str | bytes | Mapping[str, Json], lookups: Lookups | None = None
) -> tuple[Program, ...]:
    """Parse policies and their exceptions from YAML or JSON text or from dicts.

    Like `load_policies`; error messages call the first argument `document 1`.
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
    if not loaded.listed:
        # Without policies everything would be allowed.
        raise LoadError("there are no policies", where=where)
    return compile_documents(loaded.records, lookups=lookups)


class TracedVerdict(msgspec.Struct, frozen=True):
    """The verdict of a policy on a request, and the value of each of its closures."""

    verdict: Verdict
    heard: tuple[ClosureAnswer, ...]


# Evaluates a request, adapted for the policy if needed, with a recorder.
EvaluateTraced: TypeAlias = Callable[[Request, Adapt | None], TracedVerdict]


def explain(
    policy: PolicyRecord,
    request: Request,
    *,
    companions: Iterable[PolicyRecord] = (),
    adapt: Adapt | None = None,
    **options: Unpack[CompileOptions],
) -> TracedVerdict:
    """Evaluate a request with one policy and record the value of every closure.

    `companions` are the exceptions and bindings that may belong to it.
    """
    return compile_watched(policy, companions, **options)(request, adapt)


def compile_watched(
    policy: PolicyRecord,
    companions: Iterable[PolicyRecord] = (),
    **options: Unpack[CompileOptions],
) -> EvaluateTraced:
    """Compile a policy with a recorder around every closure, to evaluate many requests."""
    recorder = Recorder()
    options["watch_rule"] = recorder.for_rule
    engine = Engine(compile_documents((policy, *companions), **options))

    def evaluate_traced(request: Request, adapt: Adapt | None) -> TracedVerdict:
        recorder.answers.clear()
        verdict = engine.evaluate(request, adapt=adapt)
        return TracedVerdict(verdict, tuple(recorder.answers))

    return evaluate_traced
