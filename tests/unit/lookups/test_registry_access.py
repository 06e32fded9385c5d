"""What the controllers' flags say of registries, and what is read of Secrets."""

from base64 import b64encode
from pathlib import Path

import pytest

from lictor.core.errors import ApiError, LookupFailedError, NotFoundError, UsageError
from lictor.core.lang.networks import METADATA
from lictor.core.ports import RegistryAccess
from lictor.core.raw import Json
from lictor.images.credentials import Keychain, RegistryCredential
from lictor.images.repository_name import Repository, parse_repository
from lictor.kubernetes.flags import Flags
from lictor.lookups.registry_access import build_sources, read_registry_settings


def test_flags_become_settings(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("")
    flags = Flags(
        insecure_registries="a.example, b.example:5000",
        registry_mirrors="docker.io=mirror.example/hub",
        registry_ca=str(authorities),
        registry_allowlist="localhost:5000, a.example:443",
        registry_blocklist="10.0.0.0/8,evil.example",
    )
    found = read_registry_settings(flags, in_pod=True)
    assert [found.is_insecure(name) for name in ("a.example", "b.example", "c.example")] == [
        True,
        False,
        False,
    ]
    assert found.mirrors == (("index.docker.io", Repository("mirror.example", "hub")),)
    assert found.ca_file == str(authorities)
    assert found.addresses.allowed == {
        "localhost:5000",
        "a.example",
        "b.example:5000",
        "mirror.example",
    }
    assert found.addresses.blocked == (*METADATA, "10.0.0.0/8", "evil.example")
    every = read_registry_settings(Flags(allow_insecure_registry=True), in_pod=True)
    assert every.is_insecure("c.example")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(registry_mirrors="x"), "--registryMirrors"),
        (Flags(registry_blocklist="10.0.0/99"), "--registryBlocklist: invalid CIDR"),
        (Flags(registry_ca="/nowhere/ca.pem"), "--registryCA"),
    ],
)
def test_flags_that_cannot_be_meant_are_told(flags: Flags, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_registry_settings(flags)


def test_an_unknown_provider_is_told() -> None:
    with pytest.raises(UsageError, match="--registryCredentialHelpers: 'nobody'"):
        build_sources(Flags(registry_credential_helpers="nobody"), "own", lambda _: None)


@pytest.mark.parametrize(
    ("in_pod", "for_objects"),
    [
        (True, {"10.0.0.0/8", "127.0.0.0/8"}),
        # A laptop, or a test: what listens there is its user's.
        (False, {"10.0.0.0/8"}),
    ],
)
def test_what_is_never_asked_by_default(*, in_pod: bool, for_objects: set[str]) -> None:
    rules = read_registry_settings(Flags(), in_pod=in_pod).addresses
    some = {"127.0.0.0/8", "10.0.0.0/8"}
    assert some & set(rules.blocked) == set()
    assert some & set(rules.blocked_for_objects) == for_objects
    assert some & set(rules.blocked_in_namespaces) == some
    assert "metadata.google.internal" in rules.blocked


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


_AUTH = '{"reg.example": {"username": "me", "password": "pass"}}'


@pytest.mark.parametrize(
    "data",
    [
        {".dockerconfigjson": _encode(f'{{"auths": {_AUTH}}}')},
        {".dockercfg": _encode(_AUTH)},
    ],
)
def test_both_kinds_of_pull_secrets_are_read(data: Json) -> None:
    paths: list[str] = []

    def get(path: str) -> Json:
        paths.append(path)
        return {"data": data}

    keychain = Keychain(build_sources(Flags(image_pull_secrets="pull"), "own", get))
    found = keychain.find(parse_repository("reg.example/app"), RegistryAccess())
    assert found == RegistryCredential("me", "pass")
    assert paths == ["/api/v1/namespaces/own/secrets/pull"]


@pytest.mark.parametrize(
    ("answer", "name", "message"),
    [
        ({"data": {"password": "x"}}, "pull", "not of the type kubernetes.io/dockerconfigjson"),
        ({"data": {".dockerconfigjson": "%"}}, "pull", "has no Docker configuration"),
        ({}, "pull", "not of the type"),
        (NotFoundError("gone", status=404), "pull", "not found; create it"),
        (ApiError("you may not", status=403), "pull", "need `get` on it"),
        ({}, "kube-system/pull", "names Secrets without a namespace"),
        ({}, "../secrets/x", "names Secrets without a namespace"),
    ],
)
def test_a_secret_that_cannot_be_used_is_told(answer: Json, name: str, message: str) -> None:
    def get(_: str) -> Json:
        if isinstance(answer, Exception):
            raise answer
        return answer

    keychain = Keychain(build_sources(Flags(), "own", get))
    with pytest.raises(LookupFailedError, match=message):
        keychain.find(parse_repository("reg.example/app"), RegistryAccess(secrets=(name,)))


def test_flags_name_a_sigstore_of_ones_own(tmp_path: Path) -> None:
    root = tmp_path / "root.json"
    root.write_bytes(b"{}")
    named = Flags(enable_tuf=True, tuf_mirror="https://tuf.example/", tuf_root=str(root))
    found = read_registry_settings(named)
    assert (found.trust_mirror, found.trust_root) == ("https://tuf.example", b"{}")
    raw = read_registry_settings(Flags(enable_tuf=True, tuf_root_raw='{"a": 1}'))
    assert (raw.trust_mirror, raw.trust_root) == ("", b'{"a": 1}')
    # Without enableTuf the others say nothing, as Kyverno has it.
    unused = read_registry_settings(Flags(tuf_mirror="https://tuf.example"))
    assert (unused.trust_mirror, unused.trust_root) == ("", b"")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (Flags(enable_tuf=True, tuf_mirror="tuf.example"), "--tufMirror"),
        (Flags(enable_tuf=True, tuf_root="https://tuf.example/root.json"), "--tufRoot"),
        (Flags(enable_tuf=True, tuf_root="/nowhere/root.json"), "--tufRoot"),
    ],
)
def test_a_sigstore_that_cannot_be_meant(flags: Flags, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_registry_settings(flags)
