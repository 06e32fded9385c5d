"""What does a policy, or a group of them, answer to a request? Modules become open policies."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import (
    AdmissionStatus,
    GroupEntry,
    MemberEntry,
    PolicyEntry,
    PolicyMode,
    PolicyResponse,
    ServerEntry,
)
from lictor.addons.kubewarden.family.group_expression import (
    GroupDecision,
    Truth,
    compile_group_expression,
)
from lictor.core.errors import (
    EvaluationError,
    GuestTimeError,
    HostCallError,
    LictorError,
    LookupFailedError,
    ModuleError,
    NotYetError,
    SyntaxFaultError,
    TooLargeError,
)
from lictor.core.lang.patch import diff
from lictor.core.lang.wasm_records import ExecutionMode, Guest, GuestAnswer, GuestLimits, HostCalls
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.core.lang.wasm_module import Modules, WasmModule

# The Kubewarden that this family does the work of: what `minimumKubewardenVersion` is held against.
KUBEWARDEN_VERSION = (1, 36)
_INTERNAL = 500
_PROTOCOL = "v1"
_NOT_ON_DELETE = (
    "the policy wants to change an object, but the request has none (as in a DELETE): "
    "that is not allowed"
)
_NOT_IN_GROUP = "a member of a group may not change objects"

# What a policy can do wrong, or what goes wrong on its behalf.
_FAULTS = (EvaluationError, HostCallError, LookupFailedError, TooLargeError)

MakeHost: TypeAlias = Callable[[MemberEntry], HostCalls]


class OpenPolicy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A policy in its sandbox, or the reason why there is none."""

    name: str
    entry: MemberEntry
    guest: Guest | None = None
    mode: ExecutionMode = ExecutionMode.WAPC
    # Why it cannot be evaluated: its settings, or its module. Empty if it can.
    settings_error: str = ""
    # Its module could not be had, and may be had later.
    is_late: bool = False

    def evaluate(self, request: Json, *, raw: bool = False) -> PolicyResponse:
        """The answer of the policy; its errors are denials with the code 500."""
        uid = read_uid(request)
        if self.guest is None or self.settings_error:
            return refuse_request(uid, self.settings_error)
        try:
            self._refuse_raw(raw=raw)
            answer = self.guest.validate(request, self.entry.settings)
            return _tell(uid, answer, request if raw else _read_object(request), raw=raw)
        except GuestTimeError as error:
            return refuse_request(uid, f"the policy took longer than it may: {error}")
        except _FAULTS as error:
            return refuse_request(uid, f"internal server error: {error}")

    def validate(self, request: Json, *, raw: bool = False) -> PolicyResponse:
        """The response to the API server; an unusable policy denies in every mode."""
        response = self.evaluate(request, raw=raw)
        if self.settings_error or not isinstance(self.entry, PolicyEntry):
            return response
        return finish_response(response, self.entry, self.name)

    def _refuse_raw(self, *, raw: bool) -> None:
        if raw and self.mode is ExecutionMode.GATEKEEPER:
            raise EvaluationError("policies for Gatekeeper take no raw requests")


class OpenGroup(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A group whose members are open."""

    name: str
    entry: GroupEntry
    members: Mapping[str, OpenPolicy]
    # Missing where the expression makes no sense.
    decide: GroupDecision | None = None
    expression_error: str = ""

    @property
    def settings_error(self) -> str:
        """Why a member cannot be evaluated; the group still is, as the member may not matter."""
        broken = (member for member in self.members.values() if member.settings_error)
        return next((f"{member.name}: {member.settings_error}" for member in broken), "")

    @property
    def is_late(self) -> bool:
        """Whether a member may become available later."""
        return any(member.is_late for member in self.members.values())

    def evaluate(self, request: Json, *, raw: bool = False) -> PolicyResponse:
        """The result of the members; if it is undecidable, a denial with the code 500."""
        uid = read_uid(request)
        if self.decide is None:
            return refuse_request(uid, self.expression_error)
        poll = _Poll(self.members, request, raw)
        decided = self.decide(poll.ask)
        if decided:
            return PolicyResponse(uid=uid, allowed=True)
        details: JsonObject = {"causes": list(poll.causes.values())} if poll.causes else {}
        code = _INTERNAL if decided is None else None
        status = AdmissionStatus(message=self.entry.message, code=code, details=details)
        return PolicyResponse(uid=uid, allowed=False, status=status)

    def validate(self, request: Json, *, raw: bool = False) -> PolicyResponse:
        """The response to the API server."""
        return finish_response(self.evaluate(request, raw=raw), self.entry, self.name)


class _Poll:
    """The members of a group and one request: each is evaluated once, and only if it matters."""

    def __init__(self, members: Mapping[str, OpenPolicy], request: Json, raw: bool) -> None:  # noqa: FBT001
        self._members = members
        self._request = request
        self._raw = raw
        self._known: dict[str, Truth] = {}
        # Why members do not accept.
        self.causes: dict[str, JsonObject] = {}

    def ask(self, name: str) -> Truth:
        if name not in self._known:
            self._known[name] = self._evaluate(name)
        return self._known[name]

    def _evaluate(self, name: str) -> Truth:
        response = self._members[name].evaluate(self._request, raw=self._raw)
        status = response.status or AdmissionStatus()
        if response.patch is not msgspec.UNSET:
            status = AdmissionStatus(message=_NOT_IN_GROUP, code=_INTERNAL)
        elif response.allowed:
            return True
        self.causes[name] = _cause(status.message, f"spec.policies.{name}")
        return None if status.code == _INTERNAL else False


OpenEntry: TypeAlias = OpenPolicy | OpenGroup


def open_policy(
    name: str,
    entry: MemberEntry,
    modules: "Modules",
    host: HostCalls,
    limits: GuestLimits,
    *,
    namespace: str = "",
) -> OpenPolicy:
    """Fetch the module of a policy and hand it its settings.

    Invalid settings are in `settings_error`. ModuleError if the module cannot be run,
    LookupFailedError where it cannot be had, NotYetError where it is on its way.
    """
    module = modules.load(entry.module, namespace)
    check_metadata(module)
    return open_module(name, entry, module, host, limits)


def open_module(
    name: str,
    entry: MemberEntry,
    module: "WasmModule",
    host: HostCalls,
    limits: GuestLimits,
    mode: ExecutionMode | None = None,
) -> OpenPolicy:
    """Open a policy whose module is there, in another mode than its own where one is given."""
    # Loads wasmtime, which most commands never need.
    from lictor.addons.kubewarden.runtime import open_guest

    used = mode or module.execution_mode
    own = entry.timeout_eval_seconds
    granted = limits if own is None else replace(limits, seconds=float(own))
    guest = open_guest(module, used, granted, host)
    error = _ask_settings(guest, entry)
    return OpenPolicy(name=name, entry=entry, guest=guest, mode=used, settings_error=error)


def fail_policy(name: str, entry: MemberEntry, error: LictorError) -> OpenPolicy:
    """A policy that cannot be opened, and refuses everything."""
    detail = str(error) or type(error).__name__
    why, is_late = f"the policy cannot be run: {detail}", isinstance(error, LookupFailedError)
    return OpenPolicy(name=name, entry=entry, settings_error=why, is_late=is_late)


def open_group(
    name: str,
    entry: GroupEntry,
    modules: "Modules",
    make_host: MakeHost,
    limits: GuestLimits,
    *,
    namespace: str = "",
) -> OpenGroup:
    """Open the members of a group; one that cannot be opened answers with an error.

    NotYetError where a module is on its way.
    """
    members: dict[str, OpenPolicy] = {}
    for key, member in entry.policies.items():
        full = f"{name}/{key}"
        try:
            host = make_host(member)
            members[key] = open_policy(full, member, modules, host, limits, namespace=namespace)
        except NotYetError:
            raise
        except LictorError as error:
            members[key] = fail_policy(full, member, error)
    try:
        decide = compile_group_expression(entry.expression, entry.policies)
    except SyntaxFaultError as error:
        return OpenGroup(name=name, entry=entry, members=members, expression_error=str(error))
    return OpenGroup(name=name, entry=entry, members=members, decide=decide)


def check_metadata(module: "WasmModule") -> None:
    """Is it a policy, for a Kubewarden that is not newer than what this family does?"""
    metadata = module.metadata
    mode = module.execution_mode
    if mode is ExecutionMode.WAPC and (metadata is None or metadata.protocol_version is None):
        raise ModuleError(
            "the module has no metadata with a protocolVersion, which a waPC policy must have: "
            "annotate it first"
        )
    if metadata is None:
        return
    if mode is ExecutionMode.WAPC and metadata.protocol_version != _PROTOCOL:
        raise ModuleError(f"protocolVersion is {metadata.protocol_version!r}, not {_PROTOCOL}")
    wanted = metadata.minimum_kubewarden_version
    if wanted and _read_version(wanted) > KUBEWARDEN_VERSION:
        version = ".".join(map(str, KUBEWARDEN_VERSION))
        raise ModuleError(f"the policy needs Kubewarden {wanted}; this is {version}")


def finish_response(response: PolicyResponse, entry: ServerEntry, name: str) -> PolicyResponse:
    """The answer to the API server: monitor mode, then mutations, then the message of the owner."""
    if entry.policy_mode is PolicyMode.MONITOR:
        return replace(response, allowed=True, **_UNCHANGED, status=msgspec.UNSET)
    if isinstance(entry, GroupEntry):
        return response
    if response.patch is not msgspec.UNSET and not entry.allowed_to_mutate:
        detail = (
            f"Request rejected by policy {name}: the policy wants to change the object, "
            "but it is not allowed to mutate"
        )
        status = AdmissionStatus(message=detail)
        response = replace(response, allowed=False, **_UNCHANGED, status=status)
    if response.allowed or entry.message is None:
        return response
    status = response.status or AdmissionStatus()
    details: JsonObject = {"causes": [_cause(status.message or "", None)]}
    return replace(
        response, status=AdmissionStatus(message=entry.message, code=status.code, details=details)
    )


def read_uid(request: Json) -> str:
    """The uid of a request; a raw one may have none."""
    uid = request.get("uid") if isinstance(request, dict) else None
    return uid if isinstance(uid, str) else ""


_UNCHANGED: dict[str, msgspec.UnsetType] = {"patch": msgspec.UNSET, "patch_type": msgspec.UNSET}


def _ask_settings(guest: Guest, entry: MemberEntry) -> str:
    try:
        answer = guest.validate_settings(entry.settings)
    except _FAULTS as error:
        return f"the settings cannot be checked: {error}"
    if answer.valid:
        return ""
    return f"the settings are invalid: {answer.message or 'the policy gives no reason'}"


def _tell(uid: str, answer: GuestAnswer, before: Json, *, raw: bool) -> PolicyResponse:
    detail = PolicyResponse(
        uid=uid,
        allowed=answer.accepted,
        audit_annotations=None
        if answer.audit_annotations is None
        else dict(answer.audit_annotations),
        warnings=None if answer.warnings is None else tuple(answer.warnings),
    )
    if answer.message is not None or answer.code is not None:
        detail = replace(detail, status=AdmissionStatus(message=answer.message, code=answer.code))
    if answer.mutated_object is None:
        return detail
    if before is None and not raw:
        return replace(detail, allowed=False, status=AdmissionStatus(message=_NOT_ON_DELETE))
    changes = diff(before, answer.mutated_object)
    if not changes:
        return detail
    patch = b64encode(msgspec.json.encode(changes)).decode()
    return replace(detail, patch=patch, patch_type="JSONPatch")


def _read_object(request: Json) -> Json:
    return request.get("object") if isinstance(request, dict) else None


def refuse_request(uid: str, message: str) -> PolicyResponse:
    """A denial because the policy was not evaluated."""
    status = AdmissionStatus(message=message, code=_INTERNAL)
    return PolicyResponse(uid=uid, allowed=False, status=status)


def _cause(message: str | None, field: str | None) -> JsonObject:
    return {"reason": None, "message": message, "field": field}


def _read_version(text: str) -> tuple[int, ...]:
    parts = text.lstrip("v").split(".")[:2]
    if not all(part.isdecimal() for part in parts):
        raise ModuleError(f"minimumKubewardenVersion is {text!r}, which is no version")
    return tuple(map(int, parts))
