"""`trusted_root.json` of a Sigstore: from a folder, or from a TUF repository."""

import os
import tempfile
import threading
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import orjson

from lictor.core.crypto.pem import list_pem_blocks
from lictor.core.errors import LookupFailedError
from lictor.core.raw import Json

# Given a URL and the namespace of the policy that names it (empty: it may be internal): status and
# body.
Fetch: TypeAlias = Callable[[str, str], tuple[int, bytes]]

FOLDER_VARIABLE = "TUF_ROOT"
PUBLIC_MIRROR = "https://tuf-repo-cdn.sigstore.dev"
_TARGET = "trusted_root.json"
# The files of TUF's client: every root after the first, and the newest of the others.
_HISTORY = "root_history"
_NEWEST = ("timestamp.json", "snapshot.json", "targets.json")
_LARGEST = 1024 * 1024
_LARGEST_FIRST_ROOT = 512 * 1024
# How long a root is cached, and how long if the mirror does not answer any more. Revoked keys are
# trusted for at most this long.
_FRESH = 6 * 3600.0
_USABLE = 24 * 3600.0
# After a failure, so that a dead mirror does not delay every image.
_PAUSE = 30.0
# Policies may name mirrors; beyond this number they are fetched each time.
_MOST_ROOTS = 32


class TrustRoots:
    """The trust roots in use, each fetched once and cached; thread-safe."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        usual: tuple[str, bytes] = ("", b""),
        remaining: Callable[[], float] = lambda: float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        # The mirror and the first root for policies that name neither.
        self._usual = usual
        self._remaining = remaining
        self._clock = clock
        self._kept: OrderedDict[tuple[str, bytes, str], _Root] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        """Implements `core.ports.Registries.trusted_root`."""
        if not mirror and not root:
            if not any(self._usual) and (found := _read_folder(os.environ.get(FOLDER_VARIABLE))):
                return found
            (mirror, root), namespace = self._usual, ""
        # A namespaced policy must not learn what internal mirrors of others returned.
        kept = self._find(check_mirror(mirror or PUBLIC_MIRROR), root, namespace if mirror else "")
        seconds = min(self._remaining(), threading.TIMEOUT_MAX)
        # One thread fetches, the others wait.
        if not kept.lock.acquire(timeout=max(seconds, 0)):
            raise LookupFailedError(f"no time left to wait for the trust root of {kept.mirror}")
        try:
            return self._refresh(kept)
        finally:
            kept.lock.release()

    def _find(self, mirror: str, root: bytes, namespace: str) -> "_Root":
        key = mirror, root, namespace
        with self._lock:
            kept = self._kept.setdefault(key, _Root(mirror, root, namespace))
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST_ROOTS:
                # A namespaced policy must not reset the versions of other policies' mirrors.
                mirrors = sorted(self._kept, key=lambda each: not each[2])
                del self._kept[mirrors[0]]
            return kept

    def _refresh(self, kept: "_Root") -> bytes:
        now = self._clock()
        if kept.content and now < kept.fetched + _FRESH:
            return kept.content
        if now >= kept.failed + _PAUSE:
            try:
                kept.content = _update(kept, self._fetch)
                kept.fetched = now
            except LookupFailedError as error:
                kept.reason = str(error)
                # A timeout of one caller is not an error for the others.
                if self._remaining() > 0:
                    kept.failed = now
        if kept.content and now < kept.fetched + _USABLE:
            return kept.content
        raise LookupFailedError(kept.reason)


@dataclass(slots=True)
class _Root:
    """The state of one Sigstore. `files` is the last state of its TUF repository, which cannot
    be rolled back.
    """

    mirror: str
    first_root: bytes
    namespace: str = ""
    content: bytes = b""
    fetched: float = float("-inf")
    failed: float = float("-inf")
    reason: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


def check_mirror(mirror: str) -> str:
    """The URL of a mirror, without a trailing slash; raises LookupFailedError if it is invalid."""
    try:
        parts = urlsplit(mirror)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username is not None:
        raise LookupFailedError(
            f"the mirror {mirror[:200]!r} of a trust root is not a URL such as https://HOST/PATH"
        )
    return mirror.rstrip("/")


# --- TUF


def _update(kept: _Root, fetch: Fetch) -> bytes:
    from tuf.api.exceptions import DownloadError, RepositoryError

    try:
        with tempfile.TemporaryDirectory(prefix="lictor-trust-") as folder:
            return _update_in(Path(folder), kept, fetch)
    except DownloadError as error:
        raise LookupFailedError(
            f"the trust root of the Sigstore at {kept.mirror} is unavailable: {error}; make the "
            f"mirror reachable, or let {FOLDER_VARIABLE} name a folder with targets/{_TARGET}"
        ) from error
    except RepositoryError as error:
        raise LookupFailedError(
            f"the trust root of the Sigstore at {kept.mirror} is not trusted: {error}; check that "
            "the root metadata (tuf.root) belongs to this mirror"
        ) from error
    except (OSError, ValueError) as error:
        raise LookupFailedError(
            f"the trust root of the Sigstore at {kept.mirror} is unavailable: {error}"
        ) from error


def _update_in(folder: Path, kept: _Root, fetch: Fetch) -> bytes:
    """Run TUF's client in a folder with the last state of the repository."""
    from tuf.ngclient.config import UpdaterConfig
    from tuf.ngclient.updater import Updater

    (folder / _HISTORY).mkdir()
    for name, content in kept.files.items():
        (folder / name).write_bytes(content)
    updater = Updater(
        metadata_dir=str(folder),
        metadata_base_url=kept.mirror,
        target_base_url=f"{kept.mirror}/targets",
        fetcher=_make_fetcher(fetch, kept.namespace),
        bootstrap=_find_first_root(kept),
        # Ten times the size of Sigstores: a policy's mirror must not fill the memory.
        config=UpdaterConfig(
            max_root_rotations=64,
            max_delegations=8,
            root_max_length=64 * 1024,
            snapshot_max_length=256 * 1024,
            targets_max_length=512 * 1024,
        ),
    )
    updater.refresh()
    target = updater.get_targetinfo(_TARGET)
    if target is None or target.length > _LARGEST:
        raise LookupFailedError(f"the Sigstore at {kept.mirror} has no {_TARGET} of a usual size")
    kept.files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in (*(folder / _HISTORY).iterdir(), *(folder / name for name in _NEWEST))
    }
    return Path(updater.download_target(target, str(folder / "target"))).read_bytes()


def _find_first_root(kept: _Root) -> bytes:
    """The policy's root, otherwise the public Sigstore's, which may have other mirrors."""
    if len(kept.first_root) > _LARGEST_FIRST_ROOT:
        raise LookupFailedError(f"TUF root metadata of more than {_LARGEST_FIRST_ROOT} bytes")
    return kept.first_root or (Path(__file__).parent / "sigstore_root.json").read_bytes()


def _make_fetcher(fetch: Fetch, namespace: str) -> Json:
    """TUF's fetcher interface. Defined here, because the library is imported on demand."""
    from tuf.api.exceptions import DownloadError, DownloadHTTPError
    from tuf.ngclient.fetcher import FetcherInterface

    class Fetcher(FetcherInterface):
        """Fetches with the HTTP client of registries."""

        def _fetch(self, url: str) -> Iterator[bytes]:
            try:
                status, content = fetch(url, namespace)
            except LookupFailedError as error:
                raise DownloadError(str(error)) from error
            if status != 200:
                raise DownloadHTTPError(f"{url} returned HTTP {status}", status)
            return iter((content,))

    return Fetcher()


# --- a folder


def _read_folder(folder: str | None) -> bytes | None:
    """The files of a Sigstore client; None if there are none."""
    if not folder:
        return None
    targets = Path(folder) / "targets"
    try:
        file = targets / _TARGET
        if file.is_file():
            return _read_bounded(file)
        return _read_old_folder(targets)
    except (OSError, ValueError) as error:
        raise LookupFailedError(
            f"the trust root in {folder} ({FOLDER_VARIABLE}) cannot be read: {error}"
        ) from error


def _read_bounded(file: Path) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{file} has more than {_LARGEST} bytes")
    return content


def _read_old_folder(targets: Path) -> bytes | None:
    """Separate keys and certificates, as before trusted_root.json existed."""
    roots = _read_pem_files(targets, "fulcio*.pem")
    logs, certificate_logs = (
        _read_pem_files(targets, name) for name in ("rekor*.pub", "ctfe*.pub")
    )
    if not (roots or logs or certificate_logs):
        return None
    return orjson.dumps(
        {
            # Each may be used alone: one that another issued leads to that in a second step.
            "certificateAuthorities": [
                {"certChain": {"certificates": [{"rawBytes": data}]}} for data in roots
            ],
            "tlogs": [{"publicKey": {"rawBytes": data}} for data in logs],
            "ctlogs": [{"publicKey": {"rawBytes": data}} for data in certificate_logs],
        }
    )


def _read_pem_files(folder: Path, pattern: str) -> list[str]:
    return [
        b64encode(data).decode()
        for file in sorted(folder.glob(pattern))
        for _, data in list_pem_blocks(_read_bounded(file).decode())
    ]
