"""Files that `apply` writes: objects that were changed or made, and rows of results as Parquet."""

import io
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from lictor.cli.apply_outputs import ChangedObject
from lictor.core.errors import UsageError
from lictor.core.report.result_rows import COLUMNS


class PendingFile:
    """A file that gets its name when it is whole: a run that ends early leaves none.

    What is no plain file (a pipe, `/dev/stdout`) is written at once, and so is a file in a folder
    that takes no others.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        folder, name = os.path.split(self._path)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            is_plain = os.path.isfile(self._path) or not os.path.lexists(self._path)
            if is_plain and os.access(folder, os.W_OK):
                self.path = os.path.join(folder, f".{name}.{os.getpid()}.part")
                # What an earlier run wrote would look like what this one found.
                Path(self._path).unlink(missing_ok=True)
            else:
                self.path = self._path
            Path(self.path).write_bytes(b"")
        except OSError as error:
            raise UsageError(f"failed to create file ({path}: {error.strerror})") from error
        self._streams: list[TextIO] = []
        unwanted = "" if self.path == self._path else self.path
        weakref.finalize(self, _discard, self._streams, unwanted)

    def open(self) -> TextIO:
        """The file, to write text to."""
        stream = open(self.path, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        self._streams.append(stream)
        return stream

    def finish(self) -> None:
        """Close the file, and give it its name."""
        for stream in self._streams:
            stream.close()
        if self.path != self._path:
            os.replace(self.path, self._path)


def _discard(streams: list[TextIO], path: str) -> None:
    with suppress(OSError):
        for stream in streams:
            stream.close()
    if path:
        with suppress(OSError):
            os.unlink(path)


class ObjectFiles:
    """Where changed and made objects go: one file, or one file for each of them in a folder."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._is_folder = self._path.suffix not in (".yaml", ".yml")
        try:
            folder = self._path if self._is_folder else self._path.parent
            folder.mkdir(parents=True, exist_ok=True)
            if not self._is_folder:
                self._path.write_bytes(b"")
        except OSError as error:
            raise UsageError(f"failed to create file/folder ({path}: {error.strerror})") from error

    def write(self, made: ChangedObject) -> None:
        name = f"{made.policy}-generated" if made.is_generated else f"{made.name}-mutated"
        # The name of a resource is not to be trusted: it must not lead out of the folder.
        file = self._path / f"{name.replace('/', '_')}.yaml" if self._is_folder else self._path
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{made.text}\n---\n\n")
            stream.writelines(f"{target}\n---\n" for target in made.targets)


_MISSING = "parquet needs pyarrow; install it with: pip install 'lictor[ray]'"
# So many bytes of JSON lines become one group of rows.
_GROUP_BYTES = 32 << 20


class ParquetFile:
    """Rows of results; needs pyarrow. Only after `close` can the file be read."""

    def __init__(self, path: str) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import json, parquet
        except ImportError as error:
            raise UsageError(_MISSING) from error
        types = {"time": arrow.timestamp("s", tz="UTC")}
        self._schema = arrow.schema([(name, types.get(name, arrow.string())) for name in COLUMNS])
        self._read: Any = json.read_json
        self._options = {
            "parse_options": json.ParseOptions(explicit_schema=self._schema),
            "read_options": json.ReadOptions(block_size=_GROUP_BYTES * 2),
        }
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._file = PendingFile(path)
        self._writer = parquet.ParquetWriter(self._file.path, self._schema, compression="zstd")

    def write(self, lines: str) -> None:
        """Add rows, given as JSON lines."""
        self._waiting.append(lines.encode())
        self._bytes += len(self._waiting[-1])
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, and what readers need."""
        self._flush()
        self._writer.close()
        self._file.finish()

    def _flush(self) -> None:
        lines = b"".join(self._waiting)
        self._waiting, self._bytes = [], 0
        if lines:
            self._writer.write_table(self._read(io.BytesIO(lines), **self._options))
