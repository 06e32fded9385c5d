"""Machine code of modules, compiled once and kept on disk by the digest of the module.

Machine code is run as it is. So the folder must be ours and writable by no other user, and the
same goes for each file; what does not fit is compiled again.
"""

import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lictor.addons.kubewarden.modules.module_folder import write_whole
from lictor.core.errors import ModuleError

if TYPE_CHECKING:
    import wasmtime

    from lictor.core.lang.wasm_module import WasmModule

log = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<module>[0-9a-f]{64})-(?P<settings>.+)-(?P<code>[0-9a-f]{64})\.code")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_FILES = 1000


class CompiledModules:
    """Gives compiled modules.

    `compile_code` makes machine code of a module's content, for a policy of a namespace.
    """

    def __init__(
        self,
        folder: Path | None,
        engine: "wasmtime.Engine",
        compile_code: Callable[[bytes, str], bytes],
        most_bytes: int = 2**32,
    ) -> None:
        self._folder = folder if folder is not None and _prepare_folder(folder) else None
        self._engine = engine
        self._compile_code = compile_code
        self._most_bytes = most_bytes

    def load(self, content: bytes, namespace: str = "") -> "WasmModule":
        """The module, compiled now or earlier; ModuleError where it cannot be compiled."""
        from lictor.addons.kubewarden.runtime.engine import deserialize, digest_content

        digest = digest_content(content)
        found = self._load_kept(digest, content)
        if found is not None:
            return found
        with self._lock_others_out(digest):
            # Another process may have made it meanwhile.
            found = self._load_kept(digest, content)
            if found is not None:
                return found
            code = self._compile_code(content, namespace)
            if self._keep(digest, code):
                # From the file, so that processes share its pages.
                found = self._load_kept(digest, content)
        return found or deserialize(content, code, self._engine)

    @contextmanager
    def _lock_others_out(self, digest: str) -> Iterator[None]:
        """Of all processes with this folder, one compiles a module."""
        if self._folder is None:
            yield
            return
        path = self._folder / f"{digest}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("a compiled module cannot be locked", extra={"why": str(error)})
            yield
            return
        try:
            # Given back where the process ends, however that comes about.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _load_kept(self, digest: str, content: bytes) -> "WasmModule | None":
        from lictor.addons.kubewarden.runtime.engine import deserialize_file

        for path, checksum in self._find(digest):
            try:
                with _open_own(path) as descriptor:
                    if _hash(descriptor) != checksum:
                        raise ModuleError("its content has changed")
                    # The file that was checked, even if its name refers to another by now.
                    opened = Path(f"/proc/self/fd/{descriptor}")
                    name = str(opened if opened.exists() else path)
                    return deserialize_file(content, name, self._engine)
            except (OSError, ModuleError) as error:
                log.warning(
                    "a compiled module is not used", extra={"path": str(path), "why": str(error)}
                )
                _remove(path)
        return None

    def _find(self, digest: str) -> list[tuple[Path, str]]:
        from lictor.addons.kubewarden.runtime.engine import settings_key

        # Another user with write access beside the folder may have replaced it meanwhile.
        if self._folder is None or not _is_own_folder(self._folder):
            return []
        found = []
        for path in self._folder.glob(f"{digest}-*.code"):
            parts = _NAME.fullmatch(path.name)
            if parts is not None and parts["settings"] == settings_key():
                found.append((path, parts["code"]))
        return found

    def _keep(self, digest: str, code: bytes) -> bool:
        from lictor.addons.kubewarden.runtime.engine import settings_key

        if self._folder is None:
            return False
        name = f"{digest}-{settings_key()}-{hashlib.sha256(code).hexdigest()}.code"
        try:
            write_whole(self._folder / name, code, mode=0o600)
            self._drop_old()
        except OSError as error:
            log.warning("a compiled module is not kept", extra={"why": str(error)})
            return False
        return True

    def _drop_old(self) -> None:
        """Keep the folder from growing for ever: what was compiled first goes first."""
        folder = self._folder
        if folder is None:
            return
        listed = [(path, path.stat()) for path in folder.glob("*.code")]
        listed.sort(key=lambda each: each[1].st_mtime, reverse=True)
        size = 0
        for number, (path, found) in enumerate(listed):
            size += found.st_size
            if number and (number >= _MOST_FILES or size > self._most_bytes):
                _remove(path)
                _remove(folder / f"{path.name[:64]}.lock")


def _prepare_folder(folder: Path) -> bool:
    """Make the folder; False where it is not ours alone."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        log.warning(
            "compiled modules are not kept", extra={"folder": str(folder), "why": str(error)}
        )
        return False
    return _is_own_folder(folder)


def _is_own_folder(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
        log.warning(
            "compiled modules are not kept: others may write to the folder",
            extra={"folder": str(folder)},
        )
        return False
    return True


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


@contextmanager
def _open_own(path: Path) -> Iterator[int]:
    """A file that is ours and writable by no other user; ModuleError for any other."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_ours(found):
            raise ModuleError("others may write to it")
        yield descriptor
    finally:
        os.close(descriptor)


def _hash(descriptor: int) -> str:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A user who may not remove it may not write there either: it is compiled again each time.
        log.warning("a compiled module cannot be removed", extra={"path": str(path)})
