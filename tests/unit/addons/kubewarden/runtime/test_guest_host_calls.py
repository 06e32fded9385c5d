"""Guests of both protocols ask their host for everything that there is, and hear what it says."""

import orjson
import pytest
from opa_program import NoCompilerError, Opa, Rego, find_opa, module_folder
from rego_site import open_rego
from wat_guests import WASI_IMPORTS, assemble, data, wapc

from lictor.addons.kubewarden.family.capabilities import CAPABILITIES
from lictor.addons.kubewarden.family.entries import ContextAwareResource, MemberEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module
from lictor.core.errors import GuestError, LookupFailedError
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits
from lictor.core.ports import NoLookups, ResourceFacts
from lictor.core.raw import Json

OBJECT = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
RESOURCE = {"api_version": "v1", "kind": "Namespace"}
REVIEW = {"subject_access_review": {"user": "a"}, "disable_cache": True}
PEM = {"encoding": "Pem", "data": [1]}
# What each call is given, and what the guest hears of it here.
CALLS: dict[str, tuple[Json, str]] = {
    "kubernetes/get_resource": ({**RESOURCE, "name": "shop", "disable_cache": True}, '"shop"'),
    "kubernetes/list_resources_all": (RESOURCE, '"NamespaceList"'),
    "kubernetes/list_resources_by_namespace": ({**RESOURCE, "namespace": "x"}, "cluster wide"),
    "kubernetes/can_i": (REVIEW, '{"allowed":true}'),
    "net/v1/dns_lookup_host": ("a.example", '{"ips":["192.0.2.1"]}'),
    "oci/v1/manifest_digest": ("a.example/app:v1", "registry is away"),
    "oci/v1/oci_manifest": ("a.example/app:v1", "registry is away"),
    "oci/v1/oci_manifest_config": ("a.example/app:v1", "registry is away"),
    "oci/v1/verify": ({"SigstoreKeylessVerify": {"image": "a", "keyless": []}}, "registry is away"),
    "oci/v2/verify": (
        {"type": "SigstoreGithubActionsVerify", "image": "a", "owner": "o"},
        "registry is away",
    ),
    "crypto/v1/is_certificate_trusted": ({"cert": PEM}, "Certificate data is not valid"),
}


class Outside(NoLookups):
    def describe_kind(self, api_version, kind):
        return ResourceFacts("namespaces", namespaced=False)

    def resource(self, api_version, kind, namespace, name):
        return OBJECT

    def select_objects(self, query):
        return (OBJECT,)

    def call_api(self, call):
        return {"status": {"allowed": True}}

    def resolve_host(self, host):
        return ("192.0.2.1",)

    def registries(self):
        raise LookupFailedError("the registry is away")


def make_host(*grant: str, tell=None) -> PolicyHost:
    named = (ContextAwareResource("v1", "Namespace"),)
    entry = MemberEntry(module="m", host_capabilities=grant, context_aware_resources=named)
    return PolicyHost(Outside(), entry, policy="p", tell=tell)


def place(capability: str, payload: Json) -> tuple[str, str]:
    """The texts of a call in the guest's memory, and the arguments that point to them."""
    namespace, _, operation = capability.partition("/")
    texts = {
        2048: "kubewarden",
        2100: namespace,
        2200: operation,
        2400: orjson.dumps(payload).decode(),
    }
    points = " ".join(f"(i32.const {at}) (i32.const {len(text)})" for at, text in texts.items())
    return " ".join(data(at, text) for at, text in texts.items()), points


def ask_by_wapc(capability: str, payload: Json) -> bytes:
    texts, points = place(capability, payload)
    code = f"""(if (call $ask {points})
      (then (call $take_response (i32.const 8192))
        (call $complain (i32.const 8192) (call $response_len)))
      (else (call $take_error (i32.const 8192))
        (call $complain (i32.const 8192) (call $error_len))))
      (return (i32.const 0))"""
    return wapc(code, extra=texts)


def ask_by_wasi(capability: str, payload: Json) -> bytes:
    """Asks, copies what then stands on its input to its errors, and ends with 1."""
    texts, points = place(capability, payload)
    return assemble(f"""(module {WASI_IMPORTS}
      (import "host" "call" (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 8) {texts}
      (func (export "_start")
        (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 100000))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (drop (call $ask {points}))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
        (call $exit (i32.const 1))))""")


GUESTS = {ExecutionMode.WAPC: ask_by_wapc, ExecutionMode.WASI: ask_by_wasi}


def hear(mode: ExecutionMode, engine, capability: str, host: PolicyHost) -> str:
    payload = CALLS[capability][0] if capability in CALLS else {"level": "info", "message": "hi"}
    module = compile_module(GUESTS[mode](capability, payload), engine)
    with pytest.raises(GuestError) as caught:
        open_guest(module, mode, GuestLimits(), host).validate({}, {})
    return str(caught.value)


def test_every_call_is_made():
    assert set(CALLS) == set(CAPABILITIES)


@pytest.mark.parametrize("mode", GUESTS)
@pytest.mark.parametrize("capability", sorted(CALLS))
def test_a_guest_asks(capability, mode, engine):
    assert CALLS[capability][1] in hear(mode, engine, capability, make_host("*"))


@pytest.mark.parametrize("mode", GUESTS)
@pytest.mark.parametrize("capability", sorted(CALLS))
def test_a_guest_that_is_not_granted_it_asks(capability, mode, engine):
    others = tuple(CAPABILITIES - {capability})
    assert f"'{capability}' host capability" in hear(mode, engine, capability, make_host(*others))


@pytest.mark.parametrize("mode", GUESTS)
def test_a_guest_logs_without_a_grant(mode, engine):
    lines = []
    assert hear(mode, engine, "tracing/log", make_host(tell=lines.append)) != "unknown"
    assert [(line.policy, line.level, line.message) for line in lines] == [("p", "info", "hi")]


# --- policies in Rego find objects in their data

_GATEKEEPER = """package p
violation[{"msg": name}] { data.inventory.cluster["v1"].Namespace[name] }
"""
_OPEN_POLICY = """package p
response := {"response": {"uid": "", "allowed": false, "status": {"message": message}}}
message := concat(" ", [name | data.kubernetes.namespaces[name]])
"""
_REGO = {
    ExecutionMode.GATEKEEPER: (_GATEKEEPER, "p/violation"),
    ExecutionMode.OPA: (_OPEN_POLICY, "p/response"),
}


@pytest.fixture(scope="module")
def rego() -> dict[ExecutionMode, bytes]:
    try:
        program = find_opa()
    except NoCompilerError as error:
        pytest.skip(str(error))
    with Opa(program) as opa:
        return {
            mode: opa.build(Rego({"p.rego": text}, entrypoint, "v0"), module_folder())
            for mode, (text, entrypoint) in _REGO.items()
        }


@pytest.mark.parametrize("mode", _REGO)
def test_a_policy_in_rego_reads_what_it_is_granted(mode, rego):
    host = make_host("kubernetes/list_resources_all")
    answer = open_rego(rego[mode], mode, host=host).validate({"uid": "u"}, {})
    assert (answer.accepted, answer.message) == (False, "shop")


@pytest.mark.parametrize("mode", _REGO)
def test_a_policy_in_rego_that_is_not_granted_it_accepts_nothing(mode, rego):
    guest = open_rego(rego[mode], mode, host=make_host("kubernetes/get_resource", "oci/*"))
    with pytest.raises(GuestError, match="list_resources_all"):
        guest.validate({"uid": "u"}, {})
