"""Bearer tokens and passwords: who gets them, for how long, and who does not."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from registry_server import Answer, RegistryServer

from lictor.core.errors import LookupFailedError
from lictor.core.ports import DEFAULT_ACCESS, RegistryAccess
from lictor.images.authorization import Challenge, parse_challenge
from lictor.images.credentials import CredentialSources
from lictor.images.registries import RemoteRegistries


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer realm="https://a.example/token",service="a",scope="repository:x:pull"',
            Challenge("bearer", "https://a.example/token", "a"),
        ),
        ("bearer realm=https://a.example/t , service=s", Challenge("bearer", "https://a.example/t", "s")),
        ('Basic realm="x y"', Challenge("basic", "x y")),
        ('Basic realm="x", Bearer realm="https://a.example"', Challenge("bearer", "https://a.example")),
        (r'Bearer realm="a\"b"', Challenge("bearer", 'a"b')),
        ("Negotiate", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_challenge_is_read(header: str, expected: Challenge | None) -> None:
    assert parse_challenge(header) == expected


class _TokenServer:
    """A registry that wants tokens of its own making."""

    def __init__(self, server: RegistryServer, realm: str = "") -> None:
        self.realm = realm or f"http://{server.name}/token"
        self.tokens: list[tuple[dict[str, list[str]], str]] = []
        self.valid = {"t0"}
        self.expires_in = 300
        server.handle = self._answer

    def _answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        said = headers.get("authorization", "")
        if path.startswith("/token"):
            token = f"t{len(self.tokens)}"
            self.tokens.append((parse_qs(urlsplit(path).query), said))
            self.valid.add(token)
            body = {"token": token, "expires_in": self.expires_in}
            return 200, {}, json.dumps(body).encode()
        if said.removeprefix("Bearer ") in self.valid:
            return None
        challenge = f'Bearer realm="{self.realm}",service="reg",scope="repository:*:push"'
        return 401, {"WWW-Authenticate": challenge}, b"{}"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def _registries(config: Path, **environment: str) -> RemoteRegistries:
    found = {"DOCKER_CONFIG": str(config), "HOME": str(config), **environment}
    return RemoteRegistries(sources=CredentialSources(environment=found))


def _write_config(folder: Path, config: Mapping[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _pair(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_a_token_is_fetched_once_and_asks_to_read_this_repository(
    server: RegistryServer, tmp_path: Path
) -> None:
    tokens = _TokenServer(server)
    server.put_image("team/app", "v1", {})
    server.put_image("team/app", "v2", {})
    registries = _registries(
        _write_config(tmp_path, {"auths": {server.name: {"auth": _pair("me:pass")}}})
    )
    for tag in ("v1", "v2"):
        registries.manifest(f"{server.name}/team/app", tag, DEFAULT_ACCESS)
    ((query, said),) = tokens.tokens
    assert query == {"service": ["reg"], "scope": ["repository:team/app:pull"]}
    assert b64decode(said.removeprefix("Basic ")) == b"me:pass"
    # Asked without a token, for a token, with the token; then with the token at once.
    # On a busy machine, a request that took too long is sent again as it was.
    sent = [(path, headers.get("authorization")) for path, headers in server.asked]
    assert len(dict.fromkeys(sent)) == 4, sent


def test_a_token_that_has_ended_is_replaced(server: RegistryServer, tmp_path: Path) -> None:
    tokens = _TokenServer(server)
    for tag in ("v1", "v2"):
        server.put_image("app", tag, {})
    registries = _registries(tmp_path)
    registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
    tokens.valid.clear()
    registries.manifest(f"{server.name}/app", "v2", DEFAULT_ACCESS)
    assert len(tokens.tokens) == 2


def test_a_token_is_not_used_for_others(server: RegistryServer, tmp_path: Path) -> None:
    tokens = _TokenServer(server)
    for path in ("one/app", "two/app"):
        server.put_image(path, "v1", {})
    registries = _registries(tmp_path)
    other = RegistryAccess(secrets=("other",))
    for path, access in (
        ("one/app", DEFAULT_ACCESS),
        ("two/app", DEFAULT_ACCESS),
        ("one/app", other),
    ):
        registries.manifest(f"{server.name}/{path}", "v1", access)
    assert len(tokens.tokens) == 3


def test_an_identity_token_is_exchanged_by_post(server: RegistryServer, tmp_path: Path) -> None:
    forms: list[bytes] = []
    _TokenServer(server)
    server.handle_post = lambda _path, body: (
        forms.append(body),
        (200, {}, b'{"access_token":"t0"}'),
    )[1]
    server.put_image("app", "v1", {})
    config = {"auths": {server.name: {"identitytoken": "long"}}}
    _registries(_write_config(tmp_path, config)).manifest(
        f"{server.name}/app", "v1", DEFAULT_ACCESS
    )
    (form,) = (parse_qs(body.decode()) for body in forms)
    assert (form["grant_type"], form["refresh_token"]) == (["refresh_token"], ["long"])


def test_a_password_is_sent_where_the_registry_wants_one(
    server: RegistryServer, tmp_path: Path
) -> None:
    wanted = f"Basic {_pair('me:p:w')}"

    def answer(_: str, headers: Mapping[str, str]) -> Answer | None:
        if headers.get("authorization") == wanted:
            return None
        return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b"{}"

    server.handle = answer
    server.put_image("app", "v1", {})
    config = {"auths": {f"http://{server.name}/v2/": {"username": "me", "password": "p:w"}}}
    good = _registries(_write_config(tmp_path, config))
    good.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LookupFailedError, match=r"401.*credentials come from"):
        _registries(empty).manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"[]", "no token"), (b"{}", "no token"), (b'{"token": "a\\nb"}', "no token"), (b"x" * 70_000, "no token")],
)  # fmt: skip
def test_what_is_no_token_is_told(
    server: RegistryServer, tmp_path: Path, body: bytes, message: str
) -> None:
    def answer(path: str, _: Mapping[str, str]) -> Answer | None:
        if path.startswith("/token"):
            return 200, {}, body
        return 401, {"WWW-Authenticate": f'Bearer realm="http://{server.name}/token"'}, b"{}"

    server.handle = answer
    with pytest.raises(LookupFailedError, match=message):
        _registries(tmp_path).manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)


@pytest.mark.parametrize("realm", ["http://tokens.example/token", "ftp://x/token", "/token", ""])
def test_no_password_goes_to_a_realm_in_the_clear(
    server: RegistryServer, tmp_path: Path, realm: str
) -> None:
    def answer(_: str, __: Mapping[str, str]) -> Answer | None:
        return 401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"{}"

    server.handle = answer
    with pytest.raises(LookupFailedError, match=r"without HTTPS|invalid URL"):
        _registries(tmp_path).manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
    assert len(server.asked) == 1


def test_a_redirect_to_another_server_gets_no_password(
    server: RegistryServer, tmp_path: Path
) -> None:
    with RegistryServer() as storage:
        digest = server.put_blob("app", b"content")
        storage.contents["/stored"] = b"content"
        token = _TokenServer(server)
        before = server.handle

        def answer(path: str, headers: Mapping[str, str]) -> Answer | None:
            found = before(path, headers)
            if found is None and "/blobs/" in path:
                return 307, {"Location": f"http://{storage.name}/stored"}, b""
            return found

        server.handle = answer
        config = {"auths": {server.name: {"auth": _pair("me:pass")}}}
        registries = _registries(_write_config(tmp_path, config))
        assert registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS) == b"content"
        assert "authorization" in server.asked[-1][1]
        assert "authorization" not in storage.asked[-1][1]
        assert token.tokens


_LOGINS = {"password": {"auth": _pair("me:pass")}, "token": {"identitytoken": "long"}}


@pytest.mark.parametrize("login", _LOGINS.values(), ids=_LOGINS)
@pytest.mark.parametrize("scheme", ["Basic realm=x", 'Bearer realm="http://{}/token"'])
def test_a_challenge_of_another_server_is_not_met(
    server: RegistryServer, tmp_path: Path, login: Mapping[str, str], scheme: str
) -> None:
    """CVE-2020-15157: the credentials went to where the redirect led."""
    with RegistryServer() as storage:
        digest = server.put_blob("app", b"content")
        challenge = scheme.format(storage.name)
        stolen: list[bytes] = []
        storage.handle = lambda _path, _headers: (401, {"WWW-Authenticate": challenge}, b"{}")
        storage.handle_post = lambda _path, body: (stolen.append(body), (403, {}, b""))[1]
        location = {"Location": f"http://{storage.name}/stored"}
        server.handle = lambda path, _: (307, location, b"") if "/blobs/" in path else None
        config = {"auths": {server.name: login}}
        registries = _registries(_write_config(tmp_path, config))
        with pytest.raises(LookupFailedError, match="HTTP 401"):
            registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS)
        assert [headers.get("authorization") for _, headers in storage.asked] == [None]
        assert stolen == []


def test_what_everyone_may_read_is_read_without_the_credentials_that_are_missing(
    server: RegistryServer, tmp_path: Path
) -> None:
    tokens = _TokenServer(server)
    server.put_image("app", "v1", {})
    config = {"credHelpers": {server.name: "missing"}}
    registries = _registries(_write_config(tmp_path, config))
    registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
    ((_, said),) = tokens.tokens
    assert not said
    refuse = {"WWW-Authenticate": 'Basic realm="x"'}
    server.handle = lambda _path, _headers: (401, refuse, b"")
    with pytest.raises(LookupFailedError, match=r"docker-credential-missing.*not installed"):
        registries.manifest(f"{server.name}/other", "v1", DEFAULT_ACCESS)


def test_github_actions_have_their_token(tmp_path: Path) -> None:
    from lictor.images.credentials import Keychain
    from lictor.images.repository_name import parse_repository

    environment = {"HOME": str(tmp_path), "GITHUB_TOKEN": "secret", "GITHUB_ACTOR": "me"}
    keychain = Keychain(CredentialSources(environment=environment))
    found = keychain.find(parse_repository("ghcr.io/team/app"), DEFAULT_ACCESS)
    assert found is not None
    assert (found.username, found.password) == ("me", "secret")
    assert "secret" not in repr(found)
    assert keychain.find(parse_repository("evil.example/team/app"), DEFAULT_ACCESS) is None
