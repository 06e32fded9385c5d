"""Tokens and client certificates that change while we run: from files and from plugins."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lictor.cluster.exec_plugin import Credential, ExecPlugin, run_plugin
from lictor.errors import UnreachableError

# How long a file is believed without looking at it again.
_GLANCE = 5.0
# A credential is renewed this long before it expires, so that it does not expire on its way.
_LEEWAY = 60.0


class FileSource:
    """The token in a file, read again when the file has changed (a Pod's expires hourly)."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._seen: tuple[int, int, int] | None = None
        self._looked = float("-inf")

    def __call__(self, renew: bool) -> str:  # noqa: FBT001  (the contract of a TokenSource)
        if renew or self._clock() - self._looked > _GLANCE:
            self._look()
        return self._token

    def _look(self) -> None:
        self._looked = self._clock()
        try:
            status = os.stat(self._path)
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                self._token = self._path.read_text().strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                raise UnreachableError(f"cannot read the token in {self._path}: {error}") from error


class FilePair:
    """A client certificate and its key in files, read again when one of them has changed."""

    def __init__(self, certificate: FileSource, key: FileSource) -> None:
        self._certificate = certificate
        self._key = key

    def __call__(self, renew: bool) -> tuple[str, str]:  # noqa: FBT001
        return self._certificate(renew), self._key(renew)


class PluginSource:
    """What a credential plugin gives, kept until it expires or is refused."""

    def __init__(
        self,
        plugin: ExecPlugin,
        run: Callable[[ExecPlugin], Credential] = run_plugin,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plugin = plugin
        self._run = run
        self._clock = clock
        self._held: Credential | None = None
        self._asked = float("-inf")
        # Many requests may ask at once; the plugin (perhaps a browser window) runs for one.
        self._lock = threading.Lock()

    def token(self, renew: bool) -> str:  # noqa: FBT001
        return self._credential(renew=renew).token

    def identity(self, renew: bool) -> tuple[str, str]:  # noqa: FBT001
        held = self._credential(renew=renew)
        return held.certificate, held.key

    def _credential(self, *, renew: bool) -> Credential:
        with self._lock:
            held = self._held
            now = self._clock()
            # Requests that were refused together need one new credential, not one each.
            is_refused = renew and now - self._asked > 1.0
            if held is None or is_refused or held.expires - now < _LEEWAY:
                held = self._held = self._run(self._plugin)
                self._asked = self._clock()
            return held
