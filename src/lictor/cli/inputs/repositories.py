"""Git repositories as a source of files: cloned into a folder that is removed at exit.

Content of a repository must not make us read files of this machine: symbolic links that lead
out of a clone are removed, and paths that its files name must stay inside.
"""

import atexit
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from lictor.core.errors import BlockedAddressError, LoadError, UsageError
from lictor.core.files import YAML_ENDINGS, is_within, list_files

CLONE_TIMEOUT_SECONDS = 300.0
_MAX_REDIRECTS = 5
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOCATION = re.compile(r"<= Recv header: location: *(\S+)", re.IGNORECASE)
# The first request of git; a server that moved a repository redirects it.
_ADVERTISEMENT = "/info/refs"
# The names by which a shell function gives git the credentials: arguments can be read by every user
# of the machine, the environment only by its owner.
_USERNAME, _PASSWORD = "LICTOR_GIT_USERNAME", "LICTOR_GIT_PASSWORD"
_HELPER = (
    '!give() { test "$1" = get || return 0; '
    f'printf "username=%s\\npassword=%s\\n" "${_USERNAME}" "${_PASSWORD}"; }}; give'
)


class GitAccess(msgspec.Struct, frozen=True):
    """The branch, the credentials, and whether files may lead out of the repository."""

    branch: str = ""
    username: str = ""
    password: str = ""
    allow_outside: bool = False


def run_clone(repository: str, branch: str, target: Path, access: GitAccess) -> None:
    """Clone one branch. Raises LoadError if that fails, or if another host would be used."""
    address = repository
    for _ in range(_MAX_REDIRECTS + 1):
        moved = _try_clone(address, branch, target, access)
        if moved is None:
            return
        address = follow_redirect(address, moved)
    raise LoadError("failed to clone repository (too many redirects)", where=hide_user(repository))


def hide_user(url: str) -> str:
    """A URL for messages, without user and password."""
    return _without_user(urlsplit(url))


def follow_redirect(repository: str, location: str) -> str:
    """Return the address of a redirect. Raises LoadError if it is another server."""
    old = urlsplit(repository)
    new = urlsplit(urljoin(f"{repository}{_ADVERTISEMENT}", location))
    if not _is_same_host(old, new):
        raise LoadError(
            f"the server redirects to another host ({_origin(new)}), which is not followed: "
            "if that is where the repository is, name it",
            where=_without_user(old),
        )
    if not new.path.endswith(_ADVERTISEMENT):
        raise LoadError("the server redirects to what is no repository", where=_without_user(old))
    user, at, _ = old.netloc.rpartition("@")
    place = new.netloc.rpartition("@")[2]
    return f"{new.scheme}://{user}{at}{place}{new.path.removesuffix(_ADVERTISEMENT)}"


def _is_same_host(old: SplitResult, new: SplitResult) -> bool:
    """The same server; from http to https is the same, and the other way round is not."""
    if not old.hostname or old.hostname != new.hostname or new.scheme not in _DEFAULT_PORTS:
        return False
    is_upgrade = (old.scheme, new.scheme) == ("http", "https") and not (old.port or new.port)
    return is_upgrade or (old.scheme, _port(old)) == (new.scheme, _port(new))


def _port(parts: SplitResult) -> int | None:
    return parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _without_user(parts: SplitResult) -> str:
    return f"{_origin(parts)}{parts.path}"


def _try_clone(repository: str, branch: str, target: Path, access: GitAccess) -> str | None:
    """Clone and return None, or return the address of a redirect."""
    _check_address(repository)
    # Loaded on first use: few runs read repositories.
    import subprocess
    import tempfile

    command = ["git", "clone", "--quiet", "--depth", "1", "--single-branch"]
    command += ["--branch", branch, "--", repository, str(target)]
    with tempfile.TemporaryDirectory(prefix="lictor-git-") as folder:
        trace = Path(folder) / "trace"
        environment = _environment(urlsplit(repository), access, trace)
        limit = CLONE_TIMEOUT_SECONDS
        try:
            subprocess.run(  # noqa: S603
                command, check=True, capture_output=True, timeout=limit, env=environment
            )
        except subprocess.CalledProcessError as error:
            if moved := _read_redirect(trace):
                return moved
            shown = hide_user(repository)
            reason = error.stderr.decode(errors="replace").strip().replace(repository, shown)
            # Not chained: the command holds the whole address.
            raise LoadError(f"failed to clone repository ({reason})", where=shown) from None
        except (subprocess.TimeoutExpired, OSError) as error:
            reason = type(error).__name__ if isinstance(error, subprocess.TimeoutExpired) else error
            message = f"failed to clone repository ({reason})"
            raise LoadError(message, where=hide_user(repository)) from None
    return None


def _check_address(repository: str) -> None:
    """Raise LoadError for a blocked server; git itself resolves the name later."""
    from lictor.http.addresses import find_addresses_now

    parts = urlsplit(repository)
    if not parts.hostname:
        return
    try:
        find_addresses_now(parts.hostname, _port(parts) or 0)
    except BlockedAddressError as error:
        raise LoadError(str(error), where=hide_user(repository)) from None
    except (OSError, UnicodeError):
        return  # git may know a proxy, and reports the error


def _read_redirect(trace: Path) -> str:
    """Where the last answer sent us; git itself follows nothing."""
    try:
        found = _LOCATION.findall(trace.read_text(errors="replace"))
    except OSError:
        return ""
    return found[-1] if found else ""


def _environment(parts: SplitResult, access: GitAccess, trace: Path) -> dict[str, str]:
    settings = [("http.followRedirects", "false")]
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_TRACE_CURL": str(trace),
        "GIT_TRACE_CURL_NO_DATA": "1",
        "GIT_TRACE_REDACT": "1",
    }
    if access.username and access.password:
        # The first empties the list: a helper of the user's would write down what we are given.
        settings += [("credential.helper", ""), (f"credential.{_origin(parts)}.helper", _HELPER)]
        environment |= {_USERNAME: access.username, _PASSWORD: access.password}
    first = _count_settings()
    for number, (name, value) in enumerate(settings, first):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    environment["GIT_CONFIG_COUNT"] = str(first + len(settings))
    return environment


def _count_settings() -> int:
    """How many settings the user's own environment gives to git; ours come after them."""
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    return int(given) if given.isdecimal() else 0


# The folders of this run's clones whose files may not name anything outside.
_CONFINED: set[str] = set()


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


def clone_repository(url: str, access: GitAccess) -> str:
    """Clone, and give the file or folder in the clone that the URL names."""
    # Loaded on first use: few runs read repositories.
    import shutil
    import tempfile

    parsed = parse_repository_url(url, access.branch)
    if shutil.which("git") is None:
        raise LoadError("needs the program 'git', which was not found", where=hide_user(url))
    root = os.path.realpath(tempfile.mkdtemp(prefix="lictor-git-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    run_clone(parsed.repository, parsed.branch, Path(root), access)
    # It contains the address with its credentials, and is no longer needed.
    shutil.rmtree(os.path.join(root, ".git"), ignore_errors=True)
    if not access.allow_outside:
        _CONFINED.add(root)
        _remove_links_outside(root, url)
    start = os.path.realpath(os.path.join(root, parsed.folder))
    if not is_within(start, root):
        shown = hide_user(url)
        raise UsageError(f"{shown}: the folder {parsed.folder!r} is outside of the repository")
    if not os.path.exists(start):
        raise LoadError(f"the repository has no folder {parsed.folder!r}", where=hide_user(url))
    return start


def list_repository_files(url: str, access: GitAccess) -> Iterator[str]:
    """The YAML files of a repository, or of the folder the URL names; hidden ones too."""

    def takes(name: str) -> bool:
        return name.endswith(YAML_ENDINGS)

    return list_files(clone_repository(url, access), takes, enters=lambda _: True)


def confine(path: str, folder: str) -> str:
    """Check a path that a file in `folder` names. Raises LoadError if it leaves a clone."""
    here = os.path.abspath(folder)
    root = next((root for root in _CONFINED if is_within(here, root)), None)
    if root is None:
        return path
    # Without dots, so that they cannot climb out behind a link either.
    found = os.path.normpath(path)
    if "://" in path or not is_within(os.path.abspath(found), root):
        raise LoadError(
            "is outside of the cloned repository whose file names it, and is not read "
            "(--allow-outside reads it)",
            where=path,
        )
    return found


def _remove_links_outside(root: str, url: str) -> None:
    """Remove symbolic links that lead out of a clone, and warn."""
    removed = []
    for folder, folders, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            if os.path.islink(path) and not is_within(os.path.realpath(path), root):
                os.unlink(path)
                removed.append(os.path.relpath(path, root))
    if removed:
        listed = ", ".join(sorted(removed)[:5]) + (", ..." if len(removed) > 5 else "")
        sys.stderr.write(
            f"warning: {hide_user(url)}: left out {len(removed)} symbolic links that lead out of "
            f"the repository: {listed}\n"
        )


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
