"""Evaluates one request with a policy, or with the policies of a file."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.cli.chosen_modules import (
    SignerFlags,
    SourceFlags,
    open_store,
    point_to_module,
    split_flags,
)
from lictor.addons.kubewarden.cli.inspection import is_rego
from lictor.addons.kubewarden.cli.requests import check_request, read_request, read_settings
from lictor.addons.kubewarden.family.entries import (
    AdmissionStatus,
    ContextAwareResource,
    MemberEntry,
    PolicyEntry,
)
from lictor.addons.kubewarden.family.host_calls import (
    HostAnswers,
    LookupAnswers,
    PolicyHost,
    TellLine,
)
from lictor.addons.kubewarden.family.policy import (
    OpenEntry,
    OpenPolicy,
    check_metadata,
    open_group,
    open_module,
)
from lictor.addons.kubewarden.family.records import WasmRecord, describe_entry
from lictor.addons.kubewarden.family.sessions import RecordingHost, ReplayingHost
from lictor.addons.kubewarden.modules.module_store import ModuleStore
from lictor.cli.inputs.lookups import OfflineLookups
from lictor.core.errors import LoadError, ModuleError
from lictor.core.files import is_yaml, read_bytes
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits, HostCalls
from lictor.core.load.policies import load_documents, refuse_errors
from lictor.core.ports import Lookups, Registries
from lictor.core.raw import Json, JsonObject
from lictor.http.addresses import HostResolver

_RAW = "raw"
# kwctl's own word for it.
_MODES = {"kubewarden": ExecutionMode.WAPC}
_NOT_GRANTED = (
    "the policy wants to read objects of the cluster, and is not granted that: see `inspect`, and "
    "--allow-context-aware"
)
_SEVERAL = "the file has several policies: each of them evaluates the same request"

_INTERNAL = 500
_RESOLVE_SECONDS = 10.0

Call: TypeAlias = Callable[[], object]
# The lookups of policies; registries are used as the flags configure them.
Connect: TypeAlias = Callable[[Registries], Lookups]
# For a policy, and the name that its log lines carry.
MakeNamedHost: TypeAlias = Callable[[MemberEntry, str], HostCalls]
Resources: TypeAlias = tuple[ContextAwareResource, ...]
Entry = TypeVar("Entry", bound=MemberEntry)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants of a run."""

    word: str
    request_path: str
    settings_path: str = ""
    settings_json: str = ""
    execution_mode: str | None = None
    raw: bool = False
    allow_context_aware: bool = False
    host_capabilities: tuple[str, ...] = ("*",)
    record: str = ""
    replay: str = ""
    disable_wasmtime_cache: bool = False
    timeout: float = 5.0
    sources: SourceFlags = SourceFlags()
    signers: SignerFlags = SignerFlags()

    @property
    def is_manifest(self) -> bool:
        return is_yaml(self.word)

    @property
    def needs_cluster(self) -> bool:
        return self.allow_context_aware and not self.replay

    @property
    def mode(self) -> ExecutionMode | None:
        word = self.execution_mode
        return None if word is None else _MODES.get(word) or ExecutionMode(word)


def read_run_options(word: str, flags: JsonObject) -> RunOptions:
    """The flags of a command as a record; LoadError for flags that contradict each other."""
    sources, signers = split_flags(flags)
    options = msgspec.convert({**flags, "word": word}, RunOptions)
    if options.raw and options.is_manifest:
        raise LoadError(
            "--raw goes with a module: policies in manifests evaluate requests", where=word
        )
    return replace(options, sources=sources, signers=signers)


class RunSession(msgspec.Struct, frozen=True, kw_only=True):
    """Open policies and their request."""

    request: Json
    policies: tuple[OpenEntry, ...]
    is_manifest: bool
    is_raw: bool
    warnings: tuple[str, ...]
    # Answers host calls if they are recorded or replayed.
    answers: HostAnswers | None

    def ask(self) -> Iterator[JsonObject]:
        """The answer of each policy."""
        for policy in self.policies:
            # The other fields of a manifest have an effect too: mode, message, mutating.
            ask = policy.validate if self.is_manifest else policy.evaluate
            answer: JsonObject = msgspec.to_builtins(ask(self.request, raw=self.is_raw))
            yield answer

    def list_calls(self) -> Iterator[tuple[str, Call]]:
        """What can be measured, by name; LoadError for a policy that only fails."""
        for policy in self.policies:
            prefix = f"{policy.name} " if len(self.policies) > 1 else ""
            status = policy.evaluate(self.request, raw=self.is_raw).status
            if isinstance(status, AdmissionStatus) and status.code == _INTERNAL:
                raise LoadError(f"there is nothing to measure, the policy fails: {status.message}")
            if isinstance(policy, OpenPolicy) and policy.guest is not None:
                check = partial(policy.guest.validate_settings, policy.entry.settings)
                yield f"{prefix}validate_settings", check
            yield f"{prefix}validate", partial(policy.evaluate, self.request, raw=self.is_raw)

    def list_left(self) -> list[str]:
        """The recorded host calls that were not made again."""
        left = self.answers.list_left() if isinstance(self.answers, ReplayingHost) else []
        return [f"recorded, but not requested: {each}" for each in left]


class LocalLookups(OfflineLookups):
    """Lookups without a cluster: registries and name servers only."""

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return HostResolver().resolve(host, _RESOLVE_SECONDS)


@contextmanager
def open_session(options: RunOptions, connect: Connect, tell: TellLine) -> Iterator[RunSession]:
    """Read the request, open the policies; what is recorded is written at the end."""
    with ExitStack() as stack:
        store = _open_store(options, stack)
        lookups = connect(store.registries)
        answers = _choose_answers(options, lookups)

        def make_host(entry: MemberEntry, name: str) -> HostCalls:
            return PolicyHost(lookups, entry, policy=name, answers=answers, tell=tell)

        opener = _Opener(options, store, make_host)
        policies = tuple(opener.open_all())
        request = read_request(options.request_path)
        is_raw = options.raw or opener.is_raw
        yield RunSession(
            request=request if is_raw else check_request(request, options.request_path),
            policies=policies,
            is_manifest=options.is_manifest,
            is_raw=is_raw,
            warnings=tuple(opener.warnings),
            answers=answers,
        )
    if isinstance(answers, RecordingHost):
        Path(options.record).write_text(answers.write(), encoding="utf-8")


def _choose_answers(options: RunOptions, lookups: Lookups) -> HostAnswers | None:
    if options.replay:
        return ReplayingHost(read_bytes(options.replay).decode(), options.replay)
    return RecordingHost(LookupAnswers(lookups)) if options.record else None


def _open_store(options: RunOptions, stack: ExitStack) -> ModuleStore:
    private = None
    if options.disable_wasmtime_cache:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lictor-wasm-")))
    return open_store(options.sources, options.signers, private_folder=private)


class _Opener:
    """Opens the policies of a run, and notes what the user should know of them."""

    def __init__(self, options: RunOptions, store: ModuleStore, make_host: MakeNamedHost) -> None:
        self._wishes = options
        self._store = store
        self._make_host = make_host
        self._limits = GuestLimits(seconds=options.timeout or None)
        self.warnings: list[str] = []
        # Whether the metadata of the module allows any request.
        self.is_raw = False

    def open_all(self) -> Iterator[OpenEntry]:
        if not self._wishes.is_manifest:
            yield self._open_named()
            return
        records = read_manifest(self._wishes.word)
        if len(records) > 1:
            self.warnings.append(_SEVERAL)
        for record in records:
            yield self._open_record(record)

    def _open_named(self) -> OpenPolicy:
        options = self._wishes
        address = point_to_module(options.word, self._store)
        module = self._load(address)
        metadata = module.metadata
        if metadata is not None:
            self.is_raw = metadata.policy_type == _RAW
        wanted = metadata.context_aware_resources if metadata else ()
        entry = PolicyEntry(
            module=address,
            settings=read_settings(options.settings_path, options.settings_json),
            context_aware_resources=self._grant(msgspec.convert(wanted, Resources)),
            host_capabilities=options.host_capabilities,
        )
        return self._open(options.word, entry, module)

    def _open_record(self, record: WasmRecord) -> OpenEntry:
        name = record.metadata.name or ""
        if self._wishes.settings_path or self._wishes.settings_json:
            self.warnings.append(f"{name}: settings are those of the manifest, flags count not")
        capabilities = self._wishes.host_capabilities
        entry = describe_entry(record, capabilities)
        if isinstance(entry, PolicyEntry):
            return self._open(name, self._complete(entry), self._load(entry.module))
        members = {key: self._complete(each) for key, each in entry.policies.items()}
        opened = open_group(
            name,
            replace(entry, policies=members),
            self._store,
            lambda member: self._make_host(member, name),
            self._limits,
        )
        if error := opened.expression_error or opened.settings_error:
            raise LoadError(f"{name}: {error}", where=self._wishes.word)
        return opened

    def _complete(self, entry: Entry) -> Entry:
        return replace(
            entry,
            context_aware_resources=self._grant(entry.context_aware_resources),
            host_capabilities=self._wishes.host_capabilities,
        )

    def _grant(self, wanted: Resources) -> Resources:
        if wanted and not self._wishes.allow_context_aware and _NOT_GRANTED not in self.warnings:
            self.warnings.append(_NOT_GRANTED)
        return wanted if self._wishes.allow_context_aware else ()

    def _load(self, address: str) -> WasmModule:
        module = self._store.load(address)
        if module.metadata is not None:
            check_metadata(module)
        elif is_rego(module) and self._wishes.mode is None:
            raise ModuleError(f"{address} comes from Rego: choose opa or gatekeeper with -e")
        return module

    def _open(self, name: str, entry: PolicyEntry, module: WasmModule) -> OpenPolicy:
        host = self._make_host(entry, name)
        opened = open_module(name, entry, module, host, self._limits, self._wishes.mode)
        if opened.settings_error:
            raise LoadError(opened.settings_error, where=name)
        return opened


def read_manifest(path: str) -> list[WasmRecord]:
    """The policies of a file; LoadError for a document that is none, and for a file without any."""
    loaded = load_documents(read_bytes(path), path)
    refuse_errors(loaded)
    strangers = (*loaded.raw, *loaded.resources, *loaded.others)
    known = [each.record for each in loaded.documents if isinstance(each.record, WasmRecord)]
    if strangers or len(known) != len(loaded.documents) or not known:
        raise LoadError(
            "expected nothing but ClusterAdmissionPolicies, AdmissionPolicies and groups of them",
            where=path,
        )
    return known
