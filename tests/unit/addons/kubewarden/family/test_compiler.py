"""Kubewarden's policies as programs, with modules that run."""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[4] / "wasm"))
from wat_guests import wapc

from lictor.addons.kubewarden.family.policy_server import name_policy
from lictor.addons.kubewarden.family.records import describe_entry, locate_modules, name_uniquely
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.kubewarden.runtime.metadata import write_metadata
from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.engine import Engine
from lictor.core.errors import CompileError, NotYetError
from lictor.core.lang.wasm_module import ModuleMetadata, WasmModule
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Action, Result, RuleType, Status
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import (
    AnswerOptions,
    AnswerStyle,
    build_answer,
    render_review,
)
from lictor.policies.routes import is_unique_name

POD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
}
CHANGED = {**POD, "metadata": {**POD["metadata"], "labels": {"new": "label"}}}
EXAMPLES = Path(__file__).parents[5] / "examples" / "kubewarden"


def text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


GUESTS = {
    "accept": wapc(),
    "refuse": wapc(answer=text({"accepted": False, "message": "no", "code": 403})),
    "mutate": wapc(answer=text({"accepted": True, "mutated_object": CHANGED})),
    "settings": wapc(valid=text({"valid": False, "message": "bad settings"})),
    "trap": wapc("unreachable"),
    "warn": wapc(
        answer=text({"accepted": True, "warnings": ["careful"], "audit_annotations": {"a": "b"}})
    ),
}


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> ModuleStore:
    folder = tmp_path_factory.mktemp("modules")
    for name, content in GUESTS.items():
        whole = write_metadata(content, ModuleMetadata(protocol_version="v1"))
        (folder / f"{name}.wasm").write_bytes(whole)
    settings = ModuleSettings(
        folder=folder, private_folder=folder / "private", file_folders=(folder,)
    )
    return ModuleStore(settings)


def write_policy(
    modules: ModuleStore, guest: str, kind: str = "ClusterAdmissionPolicy", **spec: Any
) -> str:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}
    module = f"file://{modules.folder.path}/{guest}.wasm"
    made = {"rules": [rule], "module": module, "mutating": False, **spec}
    if kind.endswith("Group"):
        members = {"member": {"module": made.pop("module")}}
        del made["mutating"]
        made = {"expression": "member()", "message": "no group", "policies": members, **made}
    metadata = {
        "name": "p",
        "uid": "policy-uid",
        "resourceVersion": "7",
        "annotations": {
            "io.kubewarden.policy.category": "Tests",
            "io.kubewarden.policy.severity": "high",
        },
    }
    if not kind.startswith("Cluster"):
        metadata["namespace"] = "shop"
    body = {"apiVersion": "policies.kubewarden.io/v1", "kind": kind, "metadata": metadata}
    return text({**body, "spec": made})


def judge(policy: str, modules: Any, request: Request | None = None) -> tuple[Result, ...]:
    loaded = load_documents(policy, "policy")
    assert not loaded.problems
    engine = Engine(compile_documents(loaded.records, modules=modules))
    return engine.evaluate(request or Request.of(POD)).results


@pytest.mark.parametrize(
    ("guest", "spec", "status", "action", "message"),
    [
        ("accept", {}, Status.PASS, Action.ENFORCE, ""),
        ("refuse", {}, Status.FAIL, Action.ENFORCE, "no"),
        ("refuse", {"mode": "monitor"}, Status.FAIL, Action.AUDIT, "no"),
        ("refuse", {"message": "ask us"}, Status.FAIL, Action.ENFORCE, "ask us; no"),
        ("trap", {}, Status.ERROR, Action.ENFORCE, "unreachable"),
        ("trap", {"failurePolicy": "Ignore"}, Status.ERROR, Action.ENFORCE, "unreachable"),
        ("mutate", {}, Status.FAIL, Action.ENFORCE, "not allowed to mutate"),
        ("settings", {}, Status.ERROR, Action.ENFORCE, "bad settings"),
        # What cannot be asked refuses in mode monitor too, as in Kubewarden.
        ("settings", {"mode": "monitor"}, Status.ERROR, Action.ENFORCE, "bad settings"),
        ("missing", {"mode": "monitor"}, Status.ERROR, Action.ENFORCE, "cannot be run"),
    ],
)
def test_answers(
    modules: ModuleStore,
    guest: str,
    spec: JsonObject,
    status: Status,
    action: Action,
    message: str,
) -> None:
    (result,) = judge(write_policy(modules, guest, **spec), modules)
    assert (result.status, result.action, result.type) == (status, action, RuleType.VALIDATION)
    assert message in result.message


@pytest.mark.parametrize(
    ("guest", "spec", "expected"),
    [
        (
            "warn",
            {},
            {"allowed": True, "warnings": ["careful"], "auditAnnotations": {"a": "b"}},
        ),
        (
            "refuse",
            {},
            {"allowed": False, "status": {"status": "Failure", "message": "no", "code": 403}},
        ),
        (
            "refuse",
            {"message": "ask us"},
            {
                "allowed": False,
                "status": {
                    "status": "Failure",
                    "message": "ask us",
                    "code": 403,
                    "details": {"causes": [{"reason": None, "message": "no", "field": None}]},
                },
            },
        ),
        ("refuse", {"mode": "monitor"}, {"allowed": True}),
    ],
)
def test_the_api_server_is_told_what_kubewarden_would_tell(
    modules: ModuleStore, guest: str, spec: JsonObject, expected: JsonObject
) -> None:
    loaded = load_documents(write_policy(modules, guest, **spec), "policy")
    verdict = Engine(compile_documents(loaded.records, modules=modules)).evaluate(POD)
    answer = build_answer(verdict, AnswerOptions(AnswerStyle.OWN_PATH, lambda _: True))
    response = msgspec.json.decode(render_review("u", answer))["response"]
    assert response == {"uid": "u", **expected}


@pytest.mark.parametrize(
    ("mode", "patched"), [("protect", CHANGED), ("monitor", None)], ids=["protect", "monitor"]
)
def test_mutation(modules: ModuleStore, mode: str, patched: JsonObject | None) -> None:
    (result,) = judge(write_policy(modules, "mutate", mutating=True, mode=mode), modules)
    assert (result.status, result.type, result.patched) == (
        Status.PASS,
        RuleType.MUTATION,
        patched,
    )


def test_a_mutating_policy_that_refuses(modules: ModuleStore) -> None:
    (result,) = judge(write_policy(modules, "refuse", mutating=True), modules)
    assert (result.status, result.action) == (Status.FAIL, Action.ENFORCE)


def test_deletions_cannot_be_changed(modules: ModuleStore) -> None:
    request = Request.of(POD, operation=Operation.DELETE)
    (result,) = judge(write_policy(modules, "mutate", mutating=True), modules, request)
    assert result.status is Status.FAIL


@pytest.mark.parametrize("mutating", [False, True])
def test_audit_says_what_the_policy_says(modules: ModuleStore, mutating: bool) -> None:  # noqa: FBT001
    """As the audit scanner: without the words of the owner, and without changes."""
    request = msgspec.structs.replace(Request.of(POD), background=True)
    policy = write_policy(modules, "refuse", mutating=mutating, message="ask us")
    (result,) = judge(policy, modules, request)
    assert (result.status, result.message) == (Status.FAIL, "no")
    assert (result.type, result.patched) == (RuleType.VALIDATION, None)
    policy = write_policy(modules, "mutate", mutating=mutating)
    (result,) = judge(policy, modules, request)
    assert (result.status, result.patched) == (Status.PASS, None)


def test_reports_name_the_policy_as_kubewarden_does(modules: ModuleStore) -> None:
    (result,) = judge(write_policy(modules, "refuse"), modules)
    policy = result.policy
    assert (policy.source, policy.reported_name) == ("kubewarden", "clusterwide-p")
    assert (policy.category, policy.severity) == ("Tests", "high")
    assert result.properties == {
        "policy-uid": "policy-uid",
        "policy-resource-version": "7",
        "policy-name": "p",
        "validating": "true",
    }
    readable = [{"apiVersion": "v1", "kind": "Namespace"}]
    policy_text = write_policy(
        modules, "accept", mutating=True, mode="monitor", contextAwareResources=readable
    )
    (result,) = judge(policy_text, modules)
    assert result.policy.severity == "info"
    assert result.properties["mutating"] == result.properties["context-aware"] == "true"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ClusterAdmissionPolicy", "clusterwide-p"),
        ("AdmissionPolicy", "namespaced-shop-p"),
        ("ClusterAdmissionPolicyGroup", "clusterwide-group-p"),
        ("AdmissionPolicyGroup", "namespaced-group-shop-p"),
    ],
)
def test_unique_names(modules: ModuleStore, kind: str, name: str) -> None:
    (record,) = load_documents(write_policy(modules, "accept", kind), "policy").records
    assert name_uniquely(record) == name


def test_no_two_policies_have_one_unique_name() -> None:
    parts = ["a", "b", "group", "a-b", "b-a", "group-a", "a-group", "group-group", "namespaced"]
    names = [*parts, "a.b", "group.a", "a-b.a", "group.a-b", "group.group-a", "b-a-b"]
    made: dict[str, tuple[str, str, bool]] = {}
    for namespace, name, is_group in product(["", *parts], names, [True, False]):
        unique = name_policy(namespace=namespace, name=name, is_group=is_group)
        assert made.setdefault(unique, (namespace, name, is_group)) == (namespace, name, is_group)
        assert is_unique_name(unique)
        usual = "-".join(filter(None, ["namespaced" if namespace else "clusterwide", namespace]))
        if not is_group and "-" not in namespace and not f"{namespace}{name}".startswith("group"):
            assert unique == f"{usual}-{name}"


@pytest.mark.parametrize("kind", ["AdmissionPolicy", "AdmissionPolicyGroup"])
@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (Request.of(POD), True),
        (Request.of({**POD, "metadata": {"name": "web", "namespace": "office"}}), False),
        (Request.of({**POD, "metadata": {"name": "web"}}), False),
    ],
)
def test_policies_of_a_namespace_stay_there(
    modules: ModuleStore,
    kind: str,
    request_: Request,
    asked: bool,  # noqa: FBT001
) -> None:
    assert bool(judge(write_policy(modules, "refuse", kind), modules, request_)) is asked


def test_namespaced_policies_ask_what_their_server_lets_them(modules: ModuleStore) -> None:
    (record,) = load_documents(write_policy(modules, "accept", "AdmissionPolicy"), "p").records
    assert describe_entry(record).host_capabilities == ()
    assert describe_entry(record, ("net/*",)).host_capabilities == ("net/*",)
    (record,) = load_documents(write_policy(modules, "accept"), "p").records
    assert describe_entry(record).host_capabilities == ("*",)


def test_no_policy_guards_webhooks(modules: ModuleStore) -> None:
    """Else a policy could lock out its own repair."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    policy = write_policy(modules, "refuse", rules=[rule])
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "x"},
    }
    assert judge(policy, modules, Request.of(webhook)) == ()
    assert judge(policy, modules, Request.of({"apiVersion": "v1", "kind": "Secret"}))


def test_what_is_on_its_way_is_asked_for_again(modules: ModuleStore) -> None:
    class SlowModules:
        calls = 0

        def load(self, address: str, namespace: str = "") -> WasmModule:
            self.calls += 1
            if self.calls == 1:
                raise NotYetError("it is being fetched", patience=1)
            return modules.load(address, namespace)

    loaded = load_documents(write_policy(modules, "accept"), "policy")
    (program,) = compile_documents(loaded.records, modules=SlowModules())
    assert program.prepare is not None
    with pytest.raises(NotYetError):
        program.prepare()
    assert program.prepare() == ""
    (result,) = Engine([program]).evaluate(POD).results
    assert result.status is Status.PASS


def test_prepare_tells_why_a_policy_cannot_be_asked(modules: ModuleStore) -> None:
    loaded = load_documents(write_policy(modules, "settings"), "policy")
    (program,) = compile_documents(loaded.records, modules=modules)
    assert program.prepare is not None
    assert "bad settings" in program.prepare()


def test_a_policy_that_may_not_be_compiled_answers_with_the_reason(modules: ModuleStore) -> None:
    (record,) = load_documents(write_policy(modules, "accept"), "policy").records
    (result,) = Engine(fail_policy(record, CompileError("too large"))).evaluate(POD).results
    assert (result.status, result.message) == (Status.ERROR, "too large")
    assert result.action is Action.ENFORCE


def test_a_policy_that_the_controller_would_refuse_is_an_error(modules: ModuleStore) -> None:
    (result,) = judge(write_policy(modules, "accept", rules=[]), modules)
    assert result.status is Status.ERROR
    assert "spec.rules: there must be a rule" in result.message


def test_files_are_found_from_the_folder_of_the_policy(modules: ModuleStore) -> None:
    policy = write_policy(modules, "accept", module="file://a.wasm")
    (record,) = load_documents(policy, "policy").records
    assert locate_modules(record, "x/y").spec.module == "file://x/y/a.wasm"
    assert describe_entry(locate_modules(record, "/z")).module == "file:///z/a.wasm"
    policy = write_policy(modules, "accept", module="registry.example/a:v1")
    (record,) = load_documents(policy, "policy").records
    assert describe_entry(locate_modules(record, "x")).module == "registry://registry.example/a:v1"


def test_the_module_of_the_example_is_made_of_its_source() -> None:
    import wasmtime

    metadata = yaml.safe_load((EXAMPLES / "metadata.yml").read_text())
    code = bytes(wasmtime.wat2wasm((EXAMPLES / "forbid-text.wat").read_text()))
    whole = msgspec.convert({**metadata, "protocolVersion": "v1"}, ModuleMetadata)
    made = write_metadata(code, whole)
    assert (EXAMPLES / "forbid-text.wasm").read_bytes() == made
    copy = Path(__file__).parents[4] / "cases" / "kubewarden" / "forbid-text.wasm"
    assert copy.read_bytes() == made
