"""Which credential is found for which repository: files, Secrets, helpers, providers."""

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

from lictor.core.errors import LookupFailedError
from lictor.core.ports import RegistryAccess
from lictor.images.credentials import CredentialSources, Keychain, RegistryCredential
from lictor.images.repository_name import parse_repository


def _auth(name: str) -> Mapping[str, str]:
    return {"auth": b64encode(f"{name}:x".encode()).decode()}


@pytest.mark.parametrize(
    ("keys", "repository", "expected"),
    [
        (["reg.example"], "reg.example/app", "reg.example"),
        (["https://reg.example/v2/"], "reg.example/app", "https://reg.example/v2/"),
        (["reg.example"], "reg.example:5000/app", ""),
        (["reg.example:5000"], "reg.example:5000/app", "reg.example:5000"),
        (["[::1]:5000"], "[::1]:5000/app", "[::1]:5000"),
        (["https://index.docker.io/v1/"], "docker.io/nginx", "https://index.docker.io/v1/"),
        (["docker.io"], "index.docker.io/library/nginx", "docker.io"),
        (["reg.example", "reg.example/team"], "reg.example/team/app", "reg.example/team"),
        (["reg.example/team"], "reg.example/teams/app", ""),
        (["*.reg.example"], "a.reg.example/app", "*.reg.example"),
        (["*.reg.example"], "a.b.reg.example/app", ""),
        (["*.reg.example", "a.reg.example"], "a.reg.example/app", "a.reg.example"),
        (["reg.example"], "evil-reg.example/app", ""),
    ],
)
def test_the_entry_that_fits_best_is_taken(
    tmp_path: Path, keys: list[str], repository: str, expected: str
) -> None:
    config = {"auths": {key: _auth(str(index)) for index, key in enumerate(keys)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    keychain = Keychain(CredentialSources(environment={"DOCKER_CONFIG": str(tmp_path)}))
    found = keychain.find(parse_repository(repository), RegistryAccess())
    assert (keys[int(found.username)] if found else "") == expected


_HELPER = """#!/bin/sh
read -r server
[ "$1" = get ] || exit 9
case "$server" in
  known.example) echo '{"Username": "me", "Secret": "pass"}';;
  token.example) echo '{"Username": "<token>", "Secret": "long"}';;
  https://index.docker.io/v1/) echo '{"Username": "hub", "Secret": "pass"}';;
  slow.example) sleep 30;;
  broken.example) echo nonsense;;
  failing.example) echo 'the keychain is locked'; exit 1;;
  *) echo 'credentials not found in native keychain'; exit 1;;
esac
"""


@pytest.fixture
def helper(tmp_path: Path) -> Mapping[str, str]:
    program = tmp_path / "docker-credential-own"
    program.write_text(_HELPER)
    program.chmod(0o755)
    config = {"credsStore": "own", "auths": {"file.example": _auth("file")}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("known.example", RegistryCredential("me", "pass")),
        ("token.example", RegistryCredential(identity_token="long")),
        ("docker.io", RegistryCredential("hub", "pass")),
        ("file.example", RegistryCredential("file", "x")),
        ("other.example", None),
    ],
)
def test_a_helper_is_asked(
    helper: Mapping[str, str], registry: str, expected: RegistryCredential | None
) -> None:
    keychain = Keychain(CredentialSources(environment=helper))
    assert keychain.find(parse_repository(f"{registry}/app"), RegistryAccess()) == expected


def test_a_helper_is_asked_once_for_all_repositories(
    helper: Mapping[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "docker-credential-own"
    text = program.read_text().replace("#!/bin/sh", f"#!/bin/sh\necho x >> {tmp_path}/calls")
    program.write_text(text)
    keychain = Keychain(CredentialSources(environment=helper))
    for path in ("one", "two", "three"):
        keychain.find(parse_repository(f"known.example/{path}"), RegistryAccess())
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        ("slow.example", "did not answer within"),
        ("broken.example", "returned no credentials"),
        ("failing.example", "the keychain is locked"),
    ],
)
def test_a_helper_that_fails_is_told(
    helper: Mapping[str, str], registry: str, message: str
) -> None:
    keychain = Keychain(CredentialSources(environment=helper, helper_seconds=0.3))
    with pytest.raises(LookupFailedError, match=message):
        keychain.find(parse_repository(f"{registry}/app"), RegistryAccess())


@pytest.mark.parametrize("name", ["../../bin/evil", "missing", "a b"])
def test_a_helper_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {"reg.example": name}}))
    keychain = Keychain(CredentialSources(environment={"DOCKER_CONFIG": str(tmp_path)}))
    with pytest.raises(
        LookupFailedError, match=r"not installed|not a valid name of a credential helper"
    ):
        keychain.find(parse_repository("reg.example/app"), RegistryAccess())


class _Secrets:
    """Secrets of a cluster, and which were read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    def __call__(self, namespace: str, name: str) -> bytes:
        self.read.append((namespace, name))
        config = {"auths": {"reg.example": _auth(f"{namespace}/{name}")}}
        return json.dumps(config).encode()


@pytest.mark.parametrize(
    ("access", "read"),
    [
        # What the administrator gave counts for policies that name nothing.
        (RegistryAccess(), [("own", "global")]),
        (RegistryAccess(secrets=("pull",)), [("own", "pull")]),
        # A policy of the cluster names Secrets of our namespace only.
        (RegistryAccess(secrets=("kube-system/admin",)), [("own", "kube-system/admin")]),
        # A policy of a namespace has the Secrets there, and none of ours.
        (RegistryAccess(namespace="team"), []),
        (RegistryAccess(namespace="team", secrets=("pull",)), [("team", "pull")]),
        (RegistryAccess(namespace="team", secrets=("own/global",)), [("team", "own/global")]),
        (RegistryAccess(namespace="team", providers=("default", "github")), []),
        (RegistryAccess(providers=("github",)), []),
    ],
)
def test_whose_secrets_are_read(
    tmp_path: Path, access: RegistryAccess, read: list[tuple[str, str]]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"reg.example": _auth("machine")}}))
    secrets = _Secrets()
    sources = CredentialSources(
        read_secret=secrets,
        namespace="own",
        secrets=("global",),
        environment={"DOCKER_CONFIG": str(tmp_path), "GITHUB_TOKEN": "x"},
    )
    found = Keychain(sources).find(parse_repository("reg.example/app"), access)
    assert secrets.read == read
    if read:
        assert found is not None
        assert found.username == "/".join(read[0])
    else:
        assert found is None


def test_the_flags_may_name_secrets_of_other_namespaces(tmp_path: Path) -> None:
    secrets = _Secrets()
    sources = CredentialSources(
        read_secret=secrets, namespace="own", secrets=("other/pull",), environment={"HOME": str(tmp_path)}
    )  # fmt: skip
    Keychain(sources).find(parse_repository("reg.example/app"), RegistryAccess())
    assert secrets.read == [("other", "pull")]


@pytest.mark.parametrize("content", [b"", b"[]", b"secret: no json"])
def test_a_secret_that_holds_no_configuration_is_told_without_its_content(content: bytes) -> None:
    sources = CredentialSources(read_secret=lambda _namespace, _name: content, namespace="own")
    with pytest.raises(LookupFailedError, match="Secret own/pull has no") as failure:
        Keychain(sources).find(
            parse_repository("reg.example/app"), RegistryAccess(secrets=("pull",))
        )
    assert "no json" not in str(failure.value)
