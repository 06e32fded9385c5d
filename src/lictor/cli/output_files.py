"""Files that `apply` writes: objects that were changed or made, and rows of results as Parquet."""

import io
from pathlib import Path
from typing import Any

from lictor.errors import UsageError
from lictor.offline.apply_outputs import ChangedObject
from lictor.report.result_rows import COLUMNS


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
        try:
            self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        except OSError as error:
            raise UsageError(f"failed to create file ({path}: {error})") from error

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

    def _flush(self) -> None:
        lines = b"".join(self._waiting)
        self._waiting, self._bytes = [], 0
        if lines:
            self._writer.write_table(self._read(io.BytesIO(lines), **self._options))
