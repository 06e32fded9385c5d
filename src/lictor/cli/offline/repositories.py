"""Git repositories as a source of files: cloned by `git` into a folder that vanishes at exit."""

import atexit
import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from lictor.errors import LoadError, UsageError

CLONE_TIMEOUT_SECONDS = 300.0


class GitAccess(msgspec.Struct, frozen=True):
    """Which branch to read, and who asks."""

    branch: str = ""
    username: str = ""
    password: str = ""


class RepositoryUrl(msgspec.Struct, frozen=True):
    """A URL taken apart: the repository, the branch, and the folder below its root."""

    repository: str
    branch: str
    folder: str


def is_repository_url(path: str, *, branch: str = "") -> bool:
    """Whether a path names a repository: any URL, but for one that plainly names a YAML file."""
    if path.startswith("file://"):
        return True
    if not path.startswith(("http://", "https://")):
        return False
    return bool(branch) or not urlsplit(path).path.endswith((".yaml", ".yml"))


def parse_repository_url(url: str, branch: str) -> RepositoryUrl:
    """`https://host/owner/repository/REST`: REST is a branch, or a folder if a branch is given."""
    repository, rest = _split_file_url(url) if url.startswith("file://") else _split_web_url(url)
    if branch:
        return RepositoryUrl(repository, branch, rest)
    return RepositoryUrl(repository, rest or "main", "")


def clone_repository(url: str, access: GitAccess) -> tuple[Path, str]:
    """Clone, and give the folder of the clone and the folder in it that the URL names."""
    # Loaded on first use: few runs read repositories.
    import subprocess
    import tempfile

    parsed = parse_repository_url(url, access.branch)
    if shutil.which("git") is None:
        raise LoadError("needs the program 'git', which was not found", where=url)
    target = tempfile.mkdtemp(prefix="lictor-git-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    command = ["git", "clone", "--quiet", "--depth", "1", "--single-branch"]
    command += ["--branch", parsed.branch, "--", parsed.repository, target]
    try:
        subprocess.run(  # noqa: S603
            command,
            check=True,
            capture_output=True,
            timeout=CLONE_TIMEOUT_SECONDS,
            env=_environment(access),
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()
        raise LoadError(f"failed to clone repository ({reason})", where=url) from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise LoadError(f"failed to clone repository ({error})", where=url) from error
    return Path(target), parsed.folder


def list_repository_files(url: str, access: GitAccess, endings: tuple[str, ...]) -> Iterator[str]:
    """All files of a repository (or of the folder the URL names) with such endings, in order."""
    root, folder = clone_repository(url, access)
    start = _inside(root, folder, url)
    if start.is_file():
        yield str(start)
        return
    if not start.is_dir():
        raise LoadError(f"the repository has no folder {folder!r}", where=url)
    for path in sorted(start.rglob("*")):
        hidden = ".git" in path.relative_to(root).parts
        if not hidden and path.is_file() and path.name.endswith(endings):
            yield str(path)


def _inside(root: Path, folder: str, url: str) -> Path:
    found = (root / folder).resolve()
    if not found.is_relative_to(root.resolve()):
        raise UsageError(f"{url}: the folder {folder!r} lies outside of the repository")
    return found


def _split_web_url(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    names = [name for name in parts.path.split("/") if name]
    if len(names) < 2:
        raise UsageError(
            f"invalid URL path {parts.path} - expected https://HOST/:owner/:repository/:branch "
            "(without --git-branch flag) OR https://HOST/:owner/:repository/:directory "
            "(with --git-branch flag)"
        )
    repository = f"{parts.scheme}://{parts.netloc}/{names[0]}/{names[1]}"
    return repository, "/".join(names[2:])


def _split_file_url(url: str) -> tuple[str, str]:
    path = Path(urlsplit(url).path)
    for folder in (path, *path.parents):
        if (folder / ".git").exists() or (folder / "HEAD").is_file():
            rest = path.relative_to(folder).as_posix()
            return f"file://{folder}", "" if rest == "." else rest
    raise LoadError("is not a git repository", where=url)


def _environment(access: GitAccess) -> dict[str, str]:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if access.username and access.password:
        # By the environment: arguments can be read by every user of the machine.
        secret = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
        environment["GIT_CONFIG_COUNT"] = "1"
        environment["GIT_CONFIG_KEY_0"] = "http.extraHeader"
        environment["GIT_CONFIG_VALUE_0"] = f"Authorization: Basic {secret}"
    return environment
