"""Where the API server is and who we are to it."""

import base64
import os
import sys
from pathlib import Path

import orjson
import pytest
import yaml

from lictor.core.errors import LoadError, UnreachableError, UsageError
from lictor.kubernetes.config import choose_proxy, find_pod_config
from lictor.kubernetes.credentials import Credential, ExecPlugin, FileSource, PluginSource
from lictor.kubernetes.kubeconfig import load_config

# What a source is asked for: what it holds, or a fresh one.
KEEP, RENEW = False, True
PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def make(
    cluster: dict | None = None, user: dict | None = None, context: dict | None = None, name="one"
) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}
        ],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
    }


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(path: Path, config: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config))
    return path


def load(tmp_path: Path, config: dict, context: str = ""):
    return load_config(str(write(tmp_path / "config", config)), context)


def test_reads_cluster_and_user(tmp_path):
    found = load(
        tmp_path,
        make(
            {
                "certificate-authority-data": encode(PEM),
                "tls-server-name": "kube.example",
                "proxy-url": "http://proxy:3128",
            },
            {
                "client-certificate-data": encode("cert"),
                "client-key-data": encode("key"),
                "token": "secret",
                "as": "jane",
                "as-groups": ["dev", "ops"],
                "as-uid": "7",
                "as-user-extra": {"scopes": ["a", "b"]},
            },
            {"namespace": "team"},
        ),
    )
    assert (found.server, found.ca, found.certificate, found.key) == (
        "https://one:6443", PEM, "cert", "key",
    )  # fmt: skip
    assert found.token is not None
    assert found.token(KEEP) == "secret"
    assert (found.tls_server_name, found.proxy, found.namespace) == (
        "kube.example", "http://proxy:3128", "team",
    )  # fmt: skip
    assert (found.impersonate, found.impersonate_groups, found.impersonate_uid) == (
        "jane", ("dev", "ops"), "7",
    )  # fmt: skip
    assert found.impersonate_extra == {"scopes": ("a", "b")}
    assert found.verify


def test_files_are_relative_to_the_kubeconfig_and_read_again(tmp_path):
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "tls.crt").write_text("cert\n")
    (tmp_path / "tls.key").write_text("key\n")
    config = make(
        {"certificate-authority": "ca.crt"},
        {"client-certificate": "tls.crt", "client-key": "tls.key"},
    )
    found = load(tmp_path, config)
    assert (found.ca, found.certificate, found.key) == (PEM, "cert\n", "key\n")
    assert found.identity is not None
    (tmp_path / "tls.crt").write_text("newer")
    assert found.identity(RENEW) == ("newer", "key")


def test_chooses_a_context(tmp_path):
    config = make()
    other = make(name="two")
    for part in ("clusters", "users", "contexts"):
        config[part] += other[part]
    assert load(tmp_path, config).server == "https://one:6443"
    assert load(tmp_path, config, "two").server == "https://two:6443"


def test_basic_authentication_and_insecure(tmp_path):
    found = load(
        tmp_path, make({"insecure-skip-tls-verify": True}, {"username": "u", "password": "p"})
    )
    assert (found.username, found.password, found.verify) == ("u", "p", False)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (make({"server": ""}), "clusters[one].server: is missing"),
        (make({"server": "one:6443"}), "clusters[one].server: expected a URL of http or https"),
        (make({"server": 6443}), "clusters[one].server: expected text, not int"),
        (make({"certificate-authority": "nowhere"}), "clusters[one].certificate-authority: no such file"),
        (make({"certificate-authority-data": "!"}), "certificate-authority-data: is not base64"),
        (make({"certificate-authority-data": encode("x")}), "certificate-authority: is not PEM"),
        (
            make({"certificate-authority-data": encode(PEM), "insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify: must not be true",
        ),
        (make({"insecure-skip-tls-verify": "yes"}), "expected true or false, not 'yes'"),
        (make({"proxy-url": "socks5://x"}), "proxy-url: expected a proxy URL of http or https"),
        (make(user={"client-certificate-data": encode("c")}), "users[one].client-key: is missing"),
        (make(user={"as-groups": ["x"]}), "users[one].as: is missing"),
        (make(user={"as": "x", "as-groups": "x"}), "as-groups: expected a list of texts"),
        (make(user={"auth-provider": {"name": "oidc"}}), "auth-provider: is not supported"),
        (make(user={"exec": {"command": "x"}}), "users[one].exec.apiVersion: is missing"),
        (
            make(user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}}),
            "exec.interactiveMode: is missing",
        ),
        (
            make(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1"}}),
            "exec.command: is missing",
        ),
        (make(user={"exec": {"apiVersion": "v1"}}), "exec.apiVersion: expected"),
        (make(user={"tokenFile": "nowhere"}), "users[one].tokenFile: no such file"),
        (make(context={"user": "nobody"}), "contexts[one].user 'nobody' is not among the users (one)"),
        (make(context={"cluster": "none"}), "cluster 'none' is not among the clusters (one)"),
        ({**make(), "current-context": "x"}, "current-context 'x' is not among the contexts (one)"),
        ({**make(), "current-context": ""}, "there is no current-context; name one with --context"),
        ({**make(), "clusters": {}}, "clusters: expected a list"),
        ({**make(), "clusters": [{}]}, "clusters[0]: an entry without a name"),
    ],
)  # fmt: skip
def test_faults_name_file_and_field(tmp_path, config, message):
    with pytest.raises(LoadError) as error:
        load(tmp_path, config)
    assert message in str(error.value)
    assert str(tmp_path / "config") in str(error.value)


def test_not_yaml(tmp_path):
    (tmp_path / "config").write_text("a: [")
    with pytest.raises(LoadError, match="config:2:1: did not find"):
        load_config(str(tmp_path / "config"))


def test_several_files_are_one(tmp_path, monkeypatch):
    first = make(name="one")
    del first["contexts"], first["current-context"]
    second = make(name="two")
    second["clusters"].append({"name": "one", "cluster": {"server": "https://shadowed"}})
    second["contexts"].append({"name": "mixed", "context": {"cluster": "one", "user": "two"}})
    second["users"][0]["user"] = {"token": "of-two"}
    paths = [
        write(tmp_path / "a" / "one", first),
        tmp_path / "absent",
        write(tmp_path / "two", second),
    ]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
    assert load_config().server == "https://two:6443"
    mixed = load_config(context="mixed")
    assert mixed.server == "https://one:6443"
    assert mixed.token is not None
    assert mixed.token(KEEP) == "of-two"


def test_order_of_places(tmp_path, monkeypatch):
    home = tmp_path / "home/.kube/config"
    with pytest.raises(UsageError, match="no cluster: give --kubeconfig"):
        load_config()
    write(home, make(name="home"))
    assert load_config().server == "https://home:6443"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="KUBECONFIG: no such file"):
        load_config()
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "env", make(name="env"))))
    assert load_config().server == "https://env:6443"
    explicit = write(tmp_path / "explicit", make(name="explicit"))
    assert load_config(str(explicit)).server == "https://explicit:6443"
    with pytest.raises(LoadError, match="no such file"):
        load_config(str(tmp_path / "absent"))


def test_inside_a_pod(tmp_path):
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert find_pod_config(tmp_path, environment) is None
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "namespace").write_text("team")
    assert find_pod_config(tmp_path, {}) is None
    found = find_pod_config(tmp_path, environment)
    assert found is not None
    assert (found.server, found.ca, found.namespace) == ("https://10.0.0.1:443", PEM, "team")
    environment["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    six = find_pod_config(tmp_path, environment)
    assert six is not None
    assert six.server == "https://[fd00::1]:443"


def test_token_file_is_read_when_it_changes(tmp_path):
    clock = [0.0]
    path = tmp_path / "token"
    path.write_text("first\n")
    source = FileSource(path, lambda: clock[0])
    assert source(KEEP) == "first"
    path.write_text("second, longer")
    assert source(KEEP) == "first"
    clock[0] = 6.0
    assert source(KEEP) == "second, longer"
    path.write_text("third")
    assert source(RENEW) == "third"
    # A moment without the file, while it is being replaced, is no reason to forget.
    path.unlink()
    assert source(RENEW) == "third"
    with pytest.raises(UnreachableError, match="cannot read the token"):
        FileSource(tmp_path / "absent")(KEEP)


PLUGIN = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
open(os.environ["LOG"], "a").write(json.dumps([sys.argv[1:], info]) + "\\n")
status = json.loads(os.environ["STATUS"])
print(json.dumps({"kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": status}))
"""


def make_plugin(tmp_path: Path, status: dict, **more: object) -> dict:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    environment = {"STATUS": orjson.dumps(status).decode(), "LOG": str(tmp_path / "log")}
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(tmp_path / "plugin.py"), "get-token"],
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "interactiveMode": "Never",
            **more,
        }
    }


def read_log(tmp_path: Path) -> list:
    return [orjson.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_plugin_gives_a_token_once(tmp_path):
    status = {"token": "abc", "expirationTimestamp": "2999-01-01T00:00:00Z"}
    cluster = {
        "certificate-authority-data": encode(PEM),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
    }
    user = make_plugin(tmp_path, status, provideClusterInfo=True)
    found = load(tmp_path, make(cluster, user))
    assert found.token is not None
    assert found.identity is not None
    assert [found.token(KEEP), found.token(KEEP)] == ["abc", "abc"]
    assert found.identity(KEEP) == ("", "")
    assert read_log(tmp_path) == [
        [
            ["get-token"],
            {
                "kind": "ExecCredential",
                "apiVersion": "client.authentication.k8s.io/v1",
                "spec": {
                    "interactive": False,
                    "cluster": {
                        "server": "https://one:6443",
                        "certificate-authority-data": encode(PEM),
                        "config": {"a": 1},
                    },
                },
            },
        ]
    ]


def test_plugin_gives_a_certificate(tmp_path):
    status = {"clientCertificateData": "cert", "clientKeyData": "key"}
    found = load(tmp_path, make(user=make_plugin(tmp_path, status)))
    assert found.token is not None
    assert found.identity is not None
    assert found.identity(KEEP) == ("cert", "key")
    assert found.token(KEEP) == ""


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "returned neither a token nor a client certificate"),
        ({"clientKeyData": "x"}, "returned only one of clientCertificateData and clientKeyData"),
        ({"token": "x", "expirationTimestamp": "soon"}, "invalid expirationTimestamp: 'soon'"),
        (None, "printed an ExecCredential without status"),
    ],
)  # fmt: skip
def test_plugin_that_says_nonsense(tmp_path, status, message):
    found = load(tmp_path, make(user=make_plugin(tmp_path, status)))
    assert found.token is not None
    with pytest.raises(UnreachableError, match=message):
        found.token(KEEP)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"command": "no-such-program", "installHint": "install it"}, "is not an executable program\ninstall it"),
        ({"args": ["-c", "import sys; sys.exit('who are you?')"]}, "ended with code 1: who are you?"),
        ({"args": ["-c", "print('secret')"]}, "printed something that is not JSON"),
        ({"args": ["-c", "print({})"]}, "printed something that is not an ExecCredential"),
        ({"args": ["-c", "print('{\"kind\": \"ExecCredential\"}')"]}, "printed apiVersion None, the kubeconfig has"),
        ({"args": ["-c", "print('x' * 2_000_000)"]}, "printed more than 1 MiB"),
        ({"interactiveMode": "Always"}, "needs standard input to be a terminal"),
    ],
    ids=["absent", "fails", "no-json", "no-kind", "no-version", "too-long", "no-terminal"],
)  # fmt: skip
def test_plugin_that_fails(tmp_path, more, message, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    found = load(tmp_path, make(user=make_plugin(tmp_path, {}, **more)))
    assert found.token is not None
    with pytest.raises(UnreachableError) as error:
        found.token(KEEP)
    assert message in str(error.value)
    assert "users[one].exec: credential plugin" in str(error.value)
    assert "secret" not in str(error.value)


def test_plugin_is_relative_to_the_kubeconfig(tmp_path):
    script = tmp_path / "bin/plugin"
    script.parent.mkdir()
    answer = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "status": {"token": "t"},
    }
    script.write_text(f"#!/bin/sh\necho '{orjson.dumps(answer).decode()}'\n")
    script.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "bin/plugin"}}
    found = load(tmp_path, make(user=user))
    assert found.token is not None
    assert found.token(KEEP) == "t"


def test_plugin_runs_again_when_expired_or_refused():
    clock, runs = [1000.0], []

    def run(plugin: ExecPlugin) -> Credential:
        runs.append(clock[0])
        return Credential(token=f"token-{len(runs)}", expires=clock[0] + 600)

    source = PluginSource(ExecPlugin("x", "v1"), run, lambda: clock[0])
    assert source.token(KEEP) == "token-1"
    clock[0] += 500
    assert source.token(KEEP) == "token-1"
    clock[0] += 50  # less than a minute is left
    assert source.token(KEEP) == "token-2"
    # Refused together: one of them runs it, the others take what it brought.
    clock[0] += 10
    assert [source.token(RENEW), source.token(RENEW)] == ["token-3", "token-3"]


@pytest.mark.parametrize(
    ("server", "environment", "expected"),
    [
        ("https://api:6443", {}, ""),
        ("https://api:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api:6443", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://api:6443", {"HTTP_PROXY": "http://p:1"}, ""),
        ("https://api.corp:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "x, .corp"}, ""),
        ("https://api.corp:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "corp"}, ""),
        ("https://api.corp:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "api.corp:443"}, "http://p:1"),
        ("https://api.corp:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "api.corp:6443"}, ""),
        ("https://mycorp:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "corp"}, "http://p:1"),
        ("https://10.96.0.1:443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, ""),
        ("https://11.96.0.1:443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("https://api:6443", {"HTTPS_PROXY": "p:1", "NO_PROXY": "*"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "p:1"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "p:1"}, ""),
    ],
)
def test_proxy_of_the_environment(server, environment, expected):
    assert choose_proxy(server, environment) == expected
