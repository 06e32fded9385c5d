"""How does `git` fetch a repository? With credentials for one host, and from that host only."""

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from lictor.errors import LoadError

CLONE_TIMEOUT_SECONDS = 300.0
_MAX_REDIRECTS = 5
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOCATION = re.compile(r"<= Recv header: location: *(\S+)", re.IGNORECASE)
# What git asks a server for first; a server that moved a repository answers with another address.
_ADVERTISEMENT = "/info/refs"
# The names by which a shell function gives git the credentials: arguments can be read by every user
# of the machine, the environment only by its owner.
_USERNAME, _PASSWORD = "LICTOR_GIT_USERNAME", "LICTOR_GIT_PASSWORD"
_HELPER = (
    '!give() { test "$1" = get || return 0; '
    f'printf "username=%s\\npassword=%s\\n" "${_USERNAME}" "${_PASSWORD}"; }}; give'
)


class GitAccess(msgspec.Struct, frozen=True):
    """Which branch to read, who asks, and whether its files may lead out of the repository."""

    branch: str = ""
    username: str = ""
    password: str = ""
    allow_outside: bool = False


def run_clone(repository: str, branch: str, target: Path, access: GitAccess) -> None:
    """Clone one branch; LoadError where that fails, or where another host would be asked."""
    asked = repository
    for _ in range(_MAX_REDIRECTS + 1):
        moved = _try_clone(asked, branch, target, access)
        if moved is None:
            return
        asked = follow_redirect(asked, moved)
    raise LoadError("failed to clone repository (too many redirects)", where=hide_user(repository))


def hide_user(url: str) -> str:
    """A URL for messages: without the user and password that may stand in it."""
    return _without_user(urlsplit(url))


def follow_redirect(repository: str, location: str) -> str:
    """The address that a server sends us to; LoadError where that is not the same server."""
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
    """Clone, and give None; or where the server sends us instead."""
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
            told = f"failed to clone repository ({reason})"
            raise LoadError(told, where=hide_user(repository)) from None
    return None


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
