"""What is told of what a policy says, alone and in a group?"""

from base64 import b64decode
from typing import Any

import msgspec
import pytest

from lictor.addons.kubewarden.family.entries import (
    GroupEntry,
    MemberEntry,
    PolicyEntry,
    PolicyMode,
    PolicyResponse,
)
from lictor.addons.kubewarden.family.group_expression import compile_group_expression
from lictor.addons.kubewarden.family.policy import (
    OpenGroup,
    OpenPolicy,
    check_metadata,
    fail_policy,
    finish_response,
)
from lictor.core.errors import GuestError, GuestTimeError, ModuleError
from lictor.core.lang.wasm_module import ModuleMetadata, WasmModule
from lictor.core.lang.wasm_records import ExecutionMode, GuestAnswer, SettingsAnswer
from lictor.core.raw import Json, JsonObject

POD: JsonObject = {"kind": "Pod", "metadata": {"name": "web"}}
REQUEST: JsonObject = {"uid": "u", "object": POD}
CHANGED: JsonObject = {"kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}}
ACCEPT = GuestAnswer(accepted=True)
REFUSE = GuestAnswer(accepted=False, message="no", code=400, warnings=("w",))
MUTATE = GuestAnswer(accepted=True, mutated_object=CHANGED, audit_annotations={"a": "b"})
ENTRY = PolicyEntry(module="file://a.wasm")


class SaidGuest:
    """A guest that answers what it was told to answer."""

    def __init__(self, answer: GuestAnswer | Exception) -> None:
        self._answer = answer

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer:
        return SettingsAnswer(valid=True)


def say(
    answer: GuestAnswer | Exception,
    entry: MemberEntry = ENTRY,
    mode: ExecutionMode = ExecutionMode.WAPC,
) -> OpenPolicy:
    return OpenPolicy(name="p", entry=entry, guest=SaidGuest(answer), mode=mode)


def write(response: PolicyResponse) -> Any:
    """The response as JSON, the patch in clear, without what is null."""
    written = msgspec.to_builtins(response)
    assert written.pop("uid") == "u"
    if "patch" in written:
        assert written.pop("patchType") == "JSONPatch"
        written["patch"] = msgspec.json.decode(b64decode(written["patch"]))
    return {key: value for key, value in written.items() if value is not None}


def cause(message: str | None, field: str | None = None) -> JsonObject:
    return {"causes": [{"reason": None, "message": message, "field": field}]}


LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]


@pytest.mark.parametrize(
    ("answer", "request_", "expected"),
    [
        (ACCEPT, REQUEST, {"allowed": True}),
        (
            REFUSE,
            REQUEST,
            {"allowed": False, "status": {"message": "no", "code": 400}, "warnings": ("w",)},
        ),
        (GuestAnswer(accepted=False), REQUEST, {"allowed": False}),
        (
            GuestAnswer(accepted=True, message=""),
            REQUEST,
            {"allowed": True, "status": {"message": ""}},
        ),
        (MUTATE, REQUEST, {"allowed": True, "auditAnnotations": {"a": "b"}, "patch": LABELS}),
        (GuestAnswer(accepted=True, mutated_object=POD), REQUEST, {"allowed": True}),
        (
            GuestAnswer(accepted=False, mutated_object=CHANGED),
            REQUEST,
            {"allowed": False, "patch": LABELS},
        ),
        (
            GuestError("it trapped"),
            REQUEST,
            {
                "allowed": False,
                "status": {"message": "internal server error: it trapped", "code": 500},
            },
        ),
    ],
)
def test_evaluate(answer: GuestAnswer | Exception, request_: JsonObject, expected: Any) -> None:
    assert write(say(answer).evaluate(request_)) == expected


@pytest.mark.parametrize("request_", [{"uid": "u"}, {"uid": "u", "object": None}])
def test_no_mutation_without_object(request_: JsonObject) -> None:
    told = say(MUTATE).evaluate(request_)
    assert not told.allowed
    assert told.patch is msgspec.UNSET


def test_time_limit_is_code_500() -> None:
    told = write(say(GuestTimeError("2 s")).evaluate(REQUEST))
    assert told["status"]["code"] == 500
    assert "longer than it may" in told["status"]["message"]


@pytest.mark.parametrize(("request_", "uid"), [("text", ""), (None, ""), ({"uid": "u"}, "u")])
def test_raw(request_: Json, uid: str) -> None:
    told = say(ACCEPT).evaluate(request_, raw=True)
    assert (told.uid, told.allowed) == (uid, True)
    patched = say(MUTATE).evaluate(request_, raw=True)
    assert patched.patch is not msgspec.UNSET
    refused = say(ACCEPT, mode=ExecutionMode.GATEKEEPER).evaluate(request_, raw=True)
    assert not refused.allowed


MONITOR = PolicyEntry(module="m", policy_mode=PolicyMode.MONITOR, message="ask us")
MAY_MUTATE = PolicyEntry(module="m", allowed_to_mutate=True)
MESSAGE = PolicyEntry(module="m", message="ask us")
MUTATION_REFUSED = (
    "Request rejected by policy p: the policy wants to change the object, "
    "but it is not allowed to mutate"
)


@pytest.mark.parametrize(
    ("answer", "entry", "expected"),
    [
        (REFUSE, MONITOR, {"allowed": True, "warnings": ("w",)}),
        (MUTATE, MONITOR, {"allowed": True, "auditAnnotations": {"a": "b"}}),
        (GuestError("trap"), MONITOR, {"allowed": True}),
        (
            MUTATE,
            MAY_MUTATE,
            {"allowed": True, "auditAnnotations": {"a": "b"}, "patch": LABELS},
        ),
        (
            MUTATE,
            ENTRY,
            {
                "allowed": False,
                "auditAnnotations": {"a": "b"},
                "status": {"message": MUTATION_REFUSED},
            },
        ),
        (
            MUTATE,
            MESSAGE,
            {
                "allowed": False,
                "auditAnnotations": {"a": "b"},
                "status": {"message": "ask us", "details": cause(MUTATION_REFUSED)},
            },
        ),
        (
            REFUSE,
            MESSAGE,
            {
                "allowed": False,
                "warnings": ("w",),
                "status": {"message": "ask us", "code": 400, "details": cause("no")},
            },
        ),
        (
            GuestAnswer(accepted=False),
            MESSAGE,
            {"allowed": False, "status": {"message": "ask us", "details": cause("")}},
        ),
        (ACCEPT, MESSAGE, {"allowed": True}),
    ],
)
def test_finished(answer: GuestAnswer | Exception, entry: PolicyEntry, expected: Any) -> None:
    policy = say(answer, entry)
    assert write(policy.validate(REQUEST)) == expected
    assert write(finish_response(policy.evaluate(REQUEST), entry, "p")) == expected


@pytest.mark.parametrize("entry", [ENTRY, MONITOR, MESSAGE])
def test_what_cannot_be_run_refuses_in_every_mode(entry: PolicyEntry) -> None:
    policy = fail_policy("p", entry, ModuleError("no module"))
    told = write(policy.validate(REQUEST))
    assert told == {
        "allowed": False,
        "status": {"message": "the policy cannot be run: no module", "code": 500},
    }


MEMBERS = {
    "good": say(ACCEPT),
    "bad": say(REFUSE),
    "mute": say(GuestAnswer(accepted=False)),
    "dead": say(GuestError("trap")),
    "slow": say(GuestTimeError("2 s")),
    "change": say(MUTATE),
    "broken": fail_policy("broken", ENTRY, ModuleError("no module")),
}


@pytest.mark.parametrize(
    ("expression", "allowed", "code", "causes"),
    [
        ("good()", True, None, ""),
        ("bad()", False, None, "bad"),
        ("bad() || bad()", False, None, "bad"),
        ("mute() || bad()", False, None, "mute bad"),
        ("bad() || good()", True, None, ""),
        ("!good()", False, None, ""),
        ("!bad()", True, None, ""),
        ("dead() || good()", True, None, ""),
        ("dead()", False, 500, "dead"),
        ("!dead()", False, 500, "dead"),
        ("!slow()", False, 500, "slow"),
        ("!broken()", False, 500, "broken"),
        ("!change()", False, 500, "change"),
        ("good() && !dead()", False, 500, "dead"),
        ("dead() && bad()", False, None, "dead bad"),
        ("good() &&", False, 500, ""),
    ],
)
def test_groups(expression: str, allowed: bool, code: int | None, causes: str) -> None:  # noqa: FBT001
    told = write(open_said(expression).evaluate(REQUEST))
    assert told["allowed"] is allowed
    status = told.get("status", {})
    assert status.get("code") == code
    fields = [found["field"] for found in status.get("details", {}).get("causes", ())]
    assert fields == [f"spec.policies.{name}" for name in causes.split()]
    if not allowed and expression != "good() &&":
        assert status["message"] == "the group says no"
        assert "details" in status


def test_group_in_monitor_mode() -> None:
    group = open_said("bad()", PolicyMode.MONITOR)
    assert not group.evaluate(REQUEST).allowed
    assert write(group.validate(REQUEST)) == {"allowed": True}


def open_said(expression: str, mode: PolicyMode = PolicyMode.PROTECT) -> OpenGroup:
    entry = GroupEntry(
        expression=expression,
        message="the group says no",
        policies={name: MemberEntry(module="m") for name in MEMBERS},
        policy_mode=mode,
    )
    try:
        decide = compile_group_expression(expression, MEMBERS)
    except Exception as error:  # noqa: BLE001
        return OpenGroup(name="g", entry=entry, members=MEMBERS, expression_error=str(error))
    return OpenGroup(name="g", entry=entry, members=MEMBERS, decide=decide)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "no metadata with a protocolVersion"),
        (ModuleMetadata(), "no metadata with a protocolVersion"),
        (ModuleMetadata(protocol_version="v2"), "'v2', not v1"),
        (ModuleMetadata(protocol_version="v1"), ""),
        (ModuleMetadata(execution_mode=ExecutionMode.OPA), ""),
        (ModuleMetadata(protocol_version="v1", minimum_kubewarden_version="1.36.9"), ""),
        (ModuleMetadata(protocol_version="v1", minimum_kubewarden_version="1.37.0"), "needs"),
        (ModuleMetadata(execution_mode=ExecutionMode.WASI, minimum_kubewarden_version="2.0"), "2"),
        (ModuleMetadata(protocol_version="v1", minimum_kubewarden_version="x"), "no version"),
    ],
)
def test_metadata(metadata: ModuleMetadata | None, message: str) -> None:
    native: Any = None
    module = WasmModule(digest="d", metadata=metadata, native=native, engine=native)
    if not message:
        check_metadata(module)
        return
    with pytest.raises(ModuleError, match=message):
        check_metadata(module)
