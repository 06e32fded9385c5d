"""Modules of policies that a PolicyServer runs: fetched as its Pods fetch them, by nobody else."""

import base64
import json
import sys
import threading
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[3] / "images"), str(Path(__file__).parents[4] / "wasm")]

from registry_server import RegistryServer, digest_of
from wat_guests import wapc

from lictor.addons.kubewarden.modules.module_fetching import FetchedModules
from lictor.addons.kubewarden.modules.server_modules import (
    ClusterModules,
    ServerSources,
    bind_to_server,
)
from lictor.core.errors import LictorError, LookupFailedError, NotFoundError
from lictor.core.families.registry import registry
from lictor.images.manifests import CONFIG_TYPE, LAYER_TYPE
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy

MODULE = wapc()
POLICY = find_resource(registry().get("policies.kubewarden.io", "AdmissionPolicy"))
LOGIN = base64.b64encode(b"anna:secret").decode()


@pytest.fixture
def server():
    """A registry that only anna may read."""
    with RegistryServer() as started:
        started.put_blob("p/demo", MODULE)
        layer = {"mediaType": LAYER_TYPE, "digest": digest_of(MODULE), "size": len(MODULE)}
        config = {"mediaType": CONFIG_TYPE, "digest": started.put_blob("p/demo", b"{}"), "size": 2}
        document = {"schemaVersion": 2, "config": config, "layers": [layer]}
        started.put_manifest("p/demo", document, "v1")
        started.handle = refuse_strangers
        yield started


def refuse_strangers(_path, headers):
    if headers.get("authorization") == f"Basic {LOGIN}":
        return None
    return 401, {"WWW-Authenticate": 'Basic realm="here"'}, b"{}"


@pytest.fixture
def modules(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    login = json.dumps({"auths": {server.name: {"auth": LOGIN}}}).encode()
    stored = {
        "/api/v1/namespaces/lictor/secrets/pull": {
            "data": {".dockerconfigjson": base64.b64encode(login).decode()}
        },
        "/api/v1/namespaces/lictor/configmaps/signed": {
            "data": {
                "verification-config": "apiVersion: v1\nallOf:\n- {kind: githubAction, owner: acme}\n"
            }
        },
        "/api/v1/namespaces/lictor/configmaps/empty": {"data": {}},
    }

    def get(path):
        if path not in stored:
            raise NotFoundError(path, status=404)
        return stored[path]

    return ClusterModules(Flags(), "lictor", get)


def describe(server, name="green", **fields):
    return ServerSources(name, insecure=(server.name,), **fields)


@pytest.mark.parametrize("namespace", ["", "team"])
def test_a_server_lends_its_secret_to_its_own_policies(server, modules, namespace):
    """What another server, or lictor itself, has not been given stays closed to its policies."""
    address = f"registry://{server.name}/p/demo:v1"
    green = modules.open(describe(server, pull_secret="pull"))
    assert green.load(address, namespace).digest
    blue = modules.open(describe(server, "blue"))
    with pytest.raises(LookupFailedError):
        blue.load(address, namespace)
    with pytest.raises(LookupFailedError):
        modules.open().load(address, namespace)


def test_without_being_named_a_registry_needs_tls(server, modules):
    with pytest.raises(LookupFailedError):
        modules.open(ServerSources("green", pull_secret="pull")).load(
            f"registry://{server.name}/p/demo:v1"
        )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"verification_config": "signed"}, "no signatures found"),
        ({"verification_config": "away"}, "ConfigMap lictor/away.*is not there"),
        ({"verification_config": "empty"}, "no entry verification-config"),
        ({"trust_config": "empty"}, "no entry sigstore-trust-config"),
        ({"authorities": (("x", ("no PEM",)),)}, "PolicyServer green: x: no certificate"),
    ],
)
def test_what_a_server_demands_is_demanded_here(server, modules, fields, reason):
    sources = describe(server, pull_secret="pull", **fields)
    with pytest.raises(LictorError, match=reason):
        modules.open(sources).load(f"registry://{server.name}/p/demo:v1")


def test_servers_that_nobody_needs_are_forgotten(server, modules):
    opened = []

    def open_modules(sources):
        opened.append(sources)
        return modules.open(sources)

    news = threading.Semaphore(0)
    fetched = FetchedModules(open_modules, news.release)
    address, green = f"registry://{server.name}/p/demo:v1", describe(server, pull_secret="pull")
    for sources, is_there in ((green, True), (describe(server, "blue"), False)):
        with pytest.raises(LictorError):
            fetched.load(address, "", sources)
        assert news.acquire(timeout=60)
        if is_there:
            assert fetched.load(address, "", sources).digest
        else:
            with pytest.raises(LookupFailedError):
                fetched.load(address, "", sources)
    fetched.keep({(address, "", green)})
    assert list(fetched._opened) == [green]
    assert len(opened) == 2


def make_policy(**spec):
    document = {"metadata": {"name": "p", "namespace": "team"}, "spec": spec}
    return StoredPolicy(POLICY, document, None)


def make_server(name, **spec):
    metadata = {"name": name, "uid": "u", "generation": 3}
    head = {"apiVersion": "policies.kubewarden.io/v1", "kind": "PolicyServer"}
    return {**head, "metadata": metadata, "spec": {"image": "lictor:1", **spec}}


SERVERS = [
    make_server("green", imagePullSecret="pull", namespacedPoliciesCapabilities=["net/*"]),
    make_server("bad", replicas="many"),
]


@pytest.mark.parametrize(
    ("named", "servers", "secret", "fault"),
    [
        ("green", SERVERS, "pull", ""),
        ("blue", SERVERS, None, "there is no PolicyServer blue"),
        ("bad", SERVERS, None, "PolicyServer bad cannot be run"),
        # Without an object of that name, lictor itself is the default server.
        ("", SERVERS, None, ""),
        ("", [make_server("default", imagePullSecret="other")], "other", ""),
    ],
)
def test_a_policy_is_bound_to_the_server_that_it_names(named, servers, secret, fault):
    found = bind_to_server(make_policy(policyServer=named), servers)
    assert found.fault.startswith(fault)
    assert bool(found.fault) == bool(fault)
    assert (found.sources and found.sources.pull_secret) == secret
    assert [each.metadata.name for each in found.records] == (
        [named or "default"] if secret else []
    )
    # Another form of the server is another mark.
    assert bool(found.mark) == bool(secret or fault)
