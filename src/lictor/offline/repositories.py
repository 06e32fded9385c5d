"""Git repositories as a source of files: cloned into a folder that vanishes at exit.

What a stranger put into a repository must not make us read this machine's files: links that lead
out of a clone are taken away, and paths that its files name stay inside.
"""

import atexit
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from lictor.errors import LoadError, UsageError
from lictor.files import YAML_ENDINGS, is_within, list_files
from lictor.offline.git_clone import GitAccess, hide_user, run_clone

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
    import tempfile

    parsed = parse_repository_url(url, access.branch)
    if shutil.which("git") is None:
        raise LoadError("needs the program 'git', which was not found", where=hide_user(url))
    root = os.path.realpath(tempfile.mkdtemp(prefix="lictor-git-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    run_clone(parsed.repository, parsed.branch, Path(root), access)
    # It holds the address with all that was in it, and nobody needs it any more.
    shutil.rmtree(os.path.join(root, ".git"), ignore_errors=True)
    if not access.allow_outside:
        _CONFINED.add(root)
        _remove_links_outside(root, url)
    start = os.path.realpath(os.path.join(root, parsed.folder))
    if not is_within(start, root):
        shown = hide_user(url)
        raise UsageError(f"{shown}: the folder {parsed.folder!r} lies outside of the repository")
    if not os.path.exists(start):
        raise LoadError(f"the repository has no folder {parsed.folder!r}", where=hide_user(url))
    return start


def list_repository_files(url: str, access: GitAccess) -> Iterator[str]:
    """The YAML files of a repository, or of the folder the URL names; hidden ones too."""

    def takes(name: str) -> bool:
        return name.endswith(YAML_ENDINGS)

    return list_files(clone_repository(url, access), takes, enters=lambda _: True)


def confine(path: str, folder: str) -> str:
    """A path that a file in `folder` names: LoadError where that leads out of a clone."""
    here = os.path.abspath(folder)
    root = next((root for root in _CONFINED if is_within(here, root)), None)
    if root is None:
        return path
    # Without dots, so that they cannot climb out behind a link either.
    found = os.path.normpath(path)
    if "://" in path or not is_within(os.path.abspath(found), root):
        raise LoadError(
            "lies outside of the cloned repository whose file names it, and is not read "
            "(--allow-outside reads it)",
            where=path,
        )
    return found


def _remove_links_outside(root: str, url: str) -> None:
    """Take away symbolic links that lead out of a clone, and say so."""
    removed = []
    for folder, folders, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            if os.path.islink(path) and not is_within(os.path.realpath(path), root):
                os.unlink(path)
                removed.append(os.path.relpath(path, root))
    if removed:
        listed = ", ".join(sorted(removed)[:5]) + (", ..." if len(removed) > 5 else "")
        click.echo(
            f"warning: {hide_user(url)}: left out {len(removed)} symbolic links that lead out of "
            f"the repository: {listed}",
            err=True,
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
