"""Where files come from: paths, folders, globs, stdin and repositories."""

import io
import subprocess
from pathlib import Path

import pytest

from lictor.cli.inputs.repositories import (
    GitAccess,
    RepositoryUrl,
    is_repository_url,
    list_repository_files,
    parse_repository_url,
)
from lictor.cli.inputs.sources import (
    PolicySource,
    expand_glob,
    fetch_url,
    locate_resources,
    read_file,
    read_policies,
    resolve_path,
)
from lictor.core.errors import LictorError, LoadError, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.yaml",
        "a.yml",
        "c.json",
        "notes.txt",
        ".hidden.yaml",
        "sub/d.yaml",
        ".x/e.yaml",
    ):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(name)
    return tmp_path


def names(root: Path, paths) -> list[str]:
    return [str(Path(path).relative_to(root)) for path in paths]


def test_policies_are_found_below_a_folder_in_order(folder: Path) -> None:
    found = [text.path for text in read_policies([str(folder)])]
    assert names(folder, found) == ["a.yml", "b.yaml", "sub/d.yaml"]


def test_resources_are_found_below_a_folder_in_order(folder: Path) -> None:
    found = list(locate_resources([str(folder), str(folder / "c.json")]))
    assert names(folder, found) == [".hidden.yaml", "a.yml", "b.yaml", "sub/d.yaml", "c.json"]


def test_a_folder_that_gives_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(LoadError, match="there are no YAML files in this folder"):
        list(locate_resources([str(tmp_path)]))


def test_globs_name_files_in_order(folder: Path) -> None:
    assert names(folder, expand_glob(f"{folder}/*.y*ml")) == ["a.yml", "b.yaml"]
    assert expand_glob(f"{folder}/none*") == [f"{folder}/none*"]


def test_a_name_with_odd_letters_is_no_glob(tmp_path: Path) -> None:
    odd = tmp_path / "a[1].yaml"
    odd.write_text("x")
    assert expand_glob(str(odd)) == [str(odd)]


@pytest.mark.parametrize("path", ["nothing.yaml", "no/such/folder"])
def test_errors_name_the_path(path: str) -> None:
    with pytest.raises(LoadError, match=path):
        list(read_policies([path]))


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"kind: Pod"))
    monkeypatch.setattr("sys.stdin", piped)
    assert [text.content for text in read_policies(["-"])] == [b"kind: Pod"]


def test_only_the_web_is_fetched() -> None:
    with pytest.raises(UsageError):
        fetch_url("file:///etc/passwd")
    with pytest.raises(LoadError, match="could not be fetched"):
        fetch_url("http://127.0.0.1:9/policy.yaml")


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a.yaml", "t/a.yaml"), ("/x/a.yaml", "/x/a.yaml"), ("https://h/a.yaml", "https://h/a.yaml")],
)
def test_paths_are_seen_from_the_test_file(path: str, expected: str) -> None:
    assert resolve_path(path, Path("t")) == expected


@pytest.mark.parametrize(
    ("path", "branch", "expected"),
    [
        ("https://github.com/owner/repo", "", True),
        ("https://example.com/owner/repo/raw/policy.yaml", "", False),
        ("https://github.com/owner/repo/folder/policy.yaml", "main", True),
        ("policies/", "", False),
        ("file:///repo", "", True),
    ],
)
def test_which_urls_are_repositories(path: str, branch: str, *, expected: bool) -> None:
    assert is_repository_url(path, branch=branch) is expected


@pytest.mark.parametrize(
    ("url", "branch", "expected"),
    [
        ("https://h/o/r", "", RepositoryUrl("https://h/o/r", "main", "")),
        ("https://h/o/r/", "", RepositoryUrl("https://h/o/r", "main", "")),
        ("https://h/o/r/release-1.2", "", RepositoryUrl("https://h/o/r", "release-1.2", "")),
        ("https://h/o/r/a/b", "dev", RepositoryUrl("https://h/o/r", "dev", "a/b")),
    ],
)
def test_urls_are_taken_apart(url: str, branch: str, expected: RepositoryUrl) -> None:
    assert parse_repository_url(url, branch) == expected


def test_a_url_needs_owner_and_repository() -> None:
    with pytest.raises(UsageError, match="expected https"):
        parse_repository_url("https://github.com/owner", "")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "deep").mkdir(parents=True)
    (root / "one.yaml").write_text("one")
    (root / "deep" / "two.yml").write_text("two")
    (root / "readme.md").write_text("no")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


def test_a_repository_is_cloned_and_read(repository: Path) -> None:
    found = list(read_policies([f"file://{repository}"]))
    assert [text.content for text in found] == [b"two", b"one"]


def test_a_folder_of_a_repository(repository: Path) -> None:
    access = GitAccess(branch="main")
    found = list(read_policies([f"file://{repository}/deep"], PolicySource(access)))
    assert [text.content for text in found] == [b"two"]


@pytest.mark.parametrize(
    ("rest", "branch", "message"),
    [
        ("", "nosuch", "failed to clone"),
        ("/nosuch", "main", "no folder"),
        ("/../..", "main", "outside|not a git"),
    ],
)
def test_what_a_repository_lacks(repository: Path, rest: str, branch: str, message: str) -> None:
    with pytest.raises(LictorError, match=message):
        list(list_repository_files(f"file://{repository}{rest}", GitAccess(branch)))


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("12345")
    monkeypatch.setattr("lictor.core.files.MAX_BYTES", 4)
    with pytest.raises(LoadError, match="larger than 4 bytes"):
        read_file(str(file))
