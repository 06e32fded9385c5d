"""Policies in, programs out: the one way in which the command line, servers and users come in."""

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
from lictor.core.families.registry import Role, registry, resolve
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
    """What policies are compiled with, beside the documents."""

    # Who answers what policies ask; left out, nothing is there.
    lookups: Lookups | None
    watch_rule: WatchRule
    # Parameter objects given by hand; left out, the cluster is asked for them.
    params: Sequence[JsonObject]
    # The names of resources, with those of given CRDs; left out, those of Kubernetes' own kinds.
    resource_names: "ResourceNames"
    # Where expressions may make HTTP calls to; left out, nowhere inside.
    http_limits: HttpLimits
    # What is known of images; left out, what is found out while these programs live.
    image_outcomes: OutcomeCache
    # Queries by their text, compiled before with the same lookups; left out, none.
    queries: dict[str, Fill]
    # Where policies in Wasm have their modules from; left out, from nowhere.
    modules: Modules
    # Compile checks when a request first needs them; left out, at once.
    is_lazy: bool


def compile_documents(
    documents: Iterable[PolicyRecord], **options: Unpack[CompileOptions]
) -> tuple[Program, ...]:
    """Compile the policies among the documents, with the exceptions and bindings among them."""
    context = _make_context(documents, options)
    with keeping_garbage():
        return tuple(_compile_role(Role.POLICY, context))


def compile_cleanups(
    documents: Iterable[PolicyRecord], **options: Unpack[CompileOptions]
) -> tuple[CleanupProgram, ...]:
    """Compile the policies that delete among the documents."""
    return tuple(_compile_role(Role.DELETION, _make_context(documents, options)))


def fail_policy(
    policy: PolicyRecord, error: LictorError, **options: Unpack[CompileOptions]
) -> tuple[Program, ...]:
    """Programs that answer with an error where the policy would be asked, without compiling it."""
    kind = registry().of(policy)
    if kind.role is not Role.POLICY:
        return ()
    context = _make_context((policy,), options)
    return (resolve(kind.compile_failing)(policy, error, context),)


def _make_context(documents: Iterable[PolicyRecord], options: CompileOptions) -> CompileContext:
    params = options.get("params")
    made = CompileContext(
        options.get("lookups") or NoLookups(),
        tuple(documents),
        None if params is None else tuple(params),
        options.get("resource_names"),
        options.get("http_limits") or HttpLimits(),
        image_outcomes=options.get("image_outcomes") or OutcomeCache(),
        modules=options.get("modules") or NoModules(),
        is_lazy=options.get("is_lazy", False),
        queries=options.get("queries", {}),
    )
    watch_rule = options.get("watch_rule")
    return made if watch_rule is None else msgspec.structs.replace(made, watch_rule=watch_rule)


def _compile_role(role: Role, context: CompileContext) -> Iterator[Any]:
    known = registry()
    chosen = [(known.of(record), record) for record in context.documents]
    chosen = [(kind, record) for kind, record in chosen if kind.role is role]
    for kind, record in sorted(chosen, key=lambda each: known.order(each[1])):
        yield resolve(kind.compile)(record, context)


class PolicyEngine(Engine):
    """The `Engine` of library users: one without programs is a mistake. Servers start with none."""

    def __init__(self, programs: Iterable[Program], **options: Any) -> None:
        super().__init__(programs, **options)
        if not self.programs:
            raise UsageError("an Engine without programs would allow everything: see load_policies")


def load_policies(*paths: str | Path, lookups: Lookups | None = None) -> tuple[Program, ...]:
    """Read policies, and exceptions from them, from files and folders, ready for an Engine.

    Documents that are no policies are left out. Raises LoadError where a file cannot be read, or
    holds a policy that is wrong or that nothing here can run, and where there are no policies at
    all; the text names every problem with file, line and field.
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
    if not loaded.listed:
        # Without policies everything would be allowed.
        raise LoadError("there are no policies", where=where)
    return compile_documents(loaded.records, lookups=lookups)


class Told(msgspec.Struct, frozen=True):
    """What a policy said of a request, and what each of its parts answered on the way."""

    verdict: Verdict
    heard: tuple[ClosureAnswer, ...]


# A request, and how it changes for the policy, to what the policy said of it.
Listen: TypeAlias = Callable[[Request, Adapt | None], Told]


def explain(
    policy: PolicyRecord,
    request: Request,
    *,
    companions: Iterable[PolicyRecord] = (),
    adapt: Adapt | None = None,
    **options: Unpack[CompileOptions],
) -> Told:
    """Judge a request by one policy while listening to every closure of it.

    `companions` are the exceptions and bindings that may belong to it.
    """
    return compile_watched(policy, companions, **options)(request, adapt)


def compile_watched(
    policy: PolicyRecord,
    companions: Iterable[PolicyRecord] = (),
    **options: Unpack[CompileOptions],
) -> Listen:
    """Compile a policy with a recorder around every closure, to judge many requests."""
    recorder = Recorder()
    options["watch_rule"] = recorder.for_rule
    engine = Engine(compile_documents((policy, *companions), **options))

    def listen(request: Request, adapt: Adapt | None) -> Told:
        recorder.answers.clear()
        verdict = engine.evaluate(request, adapt=adapt)
        return Told(verdict, tuple(recorder.answers))

    return listen
