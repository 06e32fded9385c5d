"""Git repositories by HTTP: credentials stay with the host they are for."""

from pathlib import Path

import pytest
from git_http import PASSWORD, GitServer, make_repository, serving

from lictor.cli.inputs.repositories import GitAccess, follow_redirect
from lictor.cli.inputs.sources import PolicySource, read_policies
from lictor.core.errors import LoadError

ACCESS = GitAccess(branch="main", username="ali", password=PASSWORD)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_repository(tmp_path / "owner" / "store", {"one.yaml": "one"})
    return tmp_path


@pytest.fixture
def honest(folder: Path):
    with serving(GitServer(folder)) as server:
        yield server


@pytest.fixture
def stranger(folder: Path):
    """Another server that has the same repository, and would give it to anyone."""
    with serving(GitServer(folder, private=False)) as server:
        yield server


def read(url: str, access: GitAccess = ACCESS) -> list[bytes]:
    return [text.content for text in read_policies([url], PolicySource(access))]


def test_a_password_opens_a_repository(honest: GitServer) -> None:
    assert read(f"{honest.url}/owner/store") == [b"one"]


def test_a_wrong_password_opens_nothing(honest: GitServer) -> None:
    with pytest.raises(LoadError, match="failed to clone") as caught:
        read(f"{honest.url}/owner/store", GitAccess("main", "ali", "not-this-word"))
    assert "not-this-word" not in str(caught.value)


def test_a_password_in_the_address_is_used_and_never_shown(honest: GitServer) -> None:
    place = honest.url.removeprefix("http://")
    assert read(f"http://ali:{PASSWORD}@{place}/owner/store", GitAccess("main")) == [b"one"]
    for name in ("store", "nothing"):
        with pytest.raises(LoadError, match="failed to clone") as caught:
            read(f"http://ali:not-this-word@{place}/owner/{name}", GitAccess("main"))
        assert "not-this-word" not in str(caught.value)
    with pytest.raises(LoadError, match="no folder") as caught:
        read(f"http://ali:{PASSWORD}@{place}/owner/store/nowhere", GitAccess("main"))
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_host_gets_neither_password_nor_question(
    honest: GitServer, stranger: GitServer, method: str
) -> None:
    honest.private = False
    honest.moved = {(method, "/owner/store"): f"{stranger.url}/owner/store"}
    with pytest.raises(LoadError, match=r"another host|301"):
        read(f"{honest.url}/owner/store")
    assert stranger.seen == []


def test_without_a_password_another_host_is_not_asked_either(
    honest: GitServer, stranger: GitServer
) -> None:
    honest.moved = {("GET", "/owner/store"): f"{stranger.url}/owner/store"}
    with pytest.raises(LoadError, match=f"another host .{stranger.url}.*name it"):
        read(f"{honest.url}/owner/store", GitAccess("main"))
    assert stranger.seen == []


def test_a_repository_that_moved_on_its_host_is_found(honest: GitServer) -> None:
    honest.moved = {("GET", "/owner/old"): f"{honest.url}/owner/store"}
    assert read(f"{honest.url}/owner/old") == [b"one"]


def test_redirects_in_a_circle_come_to_an_end(honest: GitServer) -> None:
    honest.moved = {("GET", "/owner/a"): "/owner/b", ("GET", "/owner/b"): "/owner/a"}
    with pytest.raises(LoadError, match="too many redirects"):
        read(f"{honest.url}/owner/a")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://h/o/r.git/info/refs?service=x", "https://h/o/r.git"),
        ("/o/r.git/info/refs", "https://h/o/r.git"),
        ("https://u:p@h/o/r.git/info/refs", "https://h/o/r.git"),
        ("https://h:443/o/x/info/refs", "https://h:443/o/x"),
        ("https://h:444/o/x/info/refs", None),
        ("http://h/o/x/info/refs", None),
        ("https://h.evil/o/x/info/refs", None),
        ("https://h@evil/o/x/info/refs", None),
        ("//evil/o/x/info/refs", None),
        ("file:///etc/info/refs", None),
        ("https://h/login", None),
    ],
)
def test_where_a_redirect_may_lead(location: str, expected: str | None) -> None:
    if expected is not None:
        assert follow_redirect("https://h/o/r", location) == expected
        return
    with pytest.raises(LoadError):
        follow_redirect("https://h/o/r", location)


def test_from_http_to_https_is_the_same_host() -> None:
    moved = follow_redirect("http://me@h/o/r", "https://h/o/r/info/refs")
    assert moved == "https://me@h/o/r"
