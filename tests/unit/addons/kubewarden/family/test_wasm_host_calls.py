"""A policy in Wasm that asks its host is asked on a thread, also where it accepts what fails."""

import threading
from pathlib import Path

import msgspec
import orjson
from serving import Bench, make_review
from wat_guests import data, wapc

from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.kubewarden.runtime.metadata import write_metadata
from lictor.core.assembly import compile_documents
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.ports import NoLookups
from lictor.webhook.file_policies import FilePolicies
from lictor.webhook.guarded_lookups import GuardedLookups

_REFUSED = '{"accepted":false,"message":"the host has an address"}'


class Names(NoLookups):
    """One host, and where it was asked for."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def resolve_host(self, host):
        self.threads.append(threading.get_ident())
        return ("192.0.2.1",)


class AskingPolicies(FilePolicies):
    def __init__(self, folder: Path, guard: GuardedLookups, modules: ModuleStore) -> None:
        super().__init__(folder)
        self._lookups, self._modules = guard, modules

    def programs(self, policy):
        return compile_documents([policy.record], lookups=self._lookups, modules=self._modules)


def make_guest() -> bytes:
    """Accepts where its host cannot tell: a policy that is careless."""
    texts = {2048: "kubewarden", 2100: "net", 2200: "v1/dns_lookup_host", 2400: '"a.example"'}
    places = " ".join(f"(i32.const {at}) (i32.const {len(text)})" for at, text in texts.items())
    code = f"""(if (call $ask {places}) (then
      (call $respond (i32.const 4096) (i32.const {len(_REFUSED)})) (return (i32.const 1))))"""
    extra = " ".join(data(at, text) for at, text in texts.items())
    return wapc(code, extra=f"{extra} {data(4096, _REFUSED)}")


def test_a_careless_policy_is_asked_where_its_host_answers(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    module = write_metadata(make_guest(), ModuleMetadata(protocol_version="v1"))
    (folder / "asks.wasm").write_bytes(module)
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    policy = {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "ClusterAdmissionPolicy",
        "metadata": {"name": "asks"},
        "spec": {"module": f"file://{folder}/asks.wasm", "rules": [rule], "mutating": False},
    }
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "asks.yaml").write_bytes(orjson.dumps(policy))
    names = Names()
    guard = GuardedLookups(names)
    settings = ModuleSettings(folder=folder, private_folder=folder / "own", file_folders=(folder,))
    bench = Bench(AskingPolicies(policies, guard, ModuleStore(settings)), guard=guard)
    for _ in range(2):
        response = bench.ask("/validate/clusterwide-asks", make_review())
        assert not response["allowed"], response
        assert "the host has an address" in msgspec.json.encode(response).decode()
    assert names.threads
    assert threading.get_ident() not in names.threads
