"""Inputs are read by ranges, wherever they lie, and say so where they cannot."""

import io
import os
import pickle
import threading
from pathlib import Path

import pytest

from lictor.cli.inputs.document_reader import DocumentReader, open_resources
from lictor.cli.inputs.inputs import (
    KEPT_BYTES,
    KEPT_FILE_BYTES,
    CopyBounds,
    Input,
    KeptInput,
    copy_stream,
    open_input,
    read_windows,
)
from lictor.core.errors import LoadError

CONTENT = bytes(range(256)) * (KEPT_FILE_BYTES // 128)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    return path


def open_kinds(file: Path) -> list[Input]:
    copied = copy_stream(io.BytesIO(CONTENT), "f")
    return [open_input(str(file)), copied, KeptInput("f", CONTENT)]


def test_every_kind_gives_the_same_bytes(file: Path) -> None:
    kinds = open_kinds(file)
    assert [type(each).__name__ for each in kinds] == ["FileInput", "CopiedInput", "KeptInput"]
    for each in kinds:
        assert each.size == len(CONTENT)
        assert each.read(0, each.size) == CONTENT
        assert each.read(300, 2000) == CONTENT[300:2000]
        part = each.part("g", 1000, 500)
        assert (part.path, part.size) == ("g", 500)
        assert part.read(10, 500) == CONTENT[1010:1500]
        assert part.part("h", 5, 10).read(0, 10) == CONTENT[1005:1015]
        assert b"".join(read_windows(each, 7, each.size)) == CONTENT[7:]


def test_small_files_are_kept_until_they_are_many(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"x" * KEPT_FILE_BYTES)
    (tmp_path / "b.yaml").write_bytes(b"x" * (KEPT_FILE_BYTES + 1))
    found = [open_input(str(tmp_path / name)) for name in ("a.yaml", "b.yaml")]
    assert [type(each).__name__ for each in found] == ["KeptInput", "FileInput"]
    for number in range(40):
        (tmp_path / f"c{number:02}.yaml").write_bytes(b"x" * KEPT_FILE_BYTES)
    opened = list(open_resources([str(tmp_path)]))
    kept = [each.size for each in opened if isinstance(each, KeptInput)]
    assert len(opened) == 42
    assert sum(kept) == KEPT_BYTES


def test_a_file_can_be_read_by_another_process(file: Path) -> None:
    given = open_input(str(file))
    assert pickle.loads(pickle.dumps(given)).read(5, 9) == CONTENT[5:9]


def test_a_copy_cannot_be_given_to_another_machine() -> None:
    with pytest.raises(TypeError, match="forked processes only"):
        pickle.dumps(copy_stream(io.BytesIO(CONTENT), "f"))


@pytest.mark.parametrize("change", [b"", CONTENT + b"x", CONTENT])
def test_a_file_that_changes_is_an_error(file: Path, change: bytes) -> None:
    given = open_input(str(file))
    file.write_bytes(change)
    os.utime(file, ns=(1, 1))
    with pytest.raises(LoadError, match="f: changed while it was read"):
        given.read(0, 10)
    file.unlink()
    with pytest.raises(LoadError, match="No such file"):
        given.read(0, 10)


@pytest.mark.parametrize("size", [10, len(CONTENT)])
def test_a_pipe_is_read_once(tmp_path: Path, size: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(CONTENT[:size],))
    writer.start()
    given = open_input(str(tmp_path / "pipe"))
    writer.join()
    assert given.read(0, given.size) == given.read(0, given.size) == CONTENT[:size]


def test_a_stream_that_does_not_end_is_refused() -> None:
    bounds = CopyBounds(limit=KEPT_FILE_BYTES * 2 - 1, refusal="too much")
    with pytest.raises(LoadError, match="f: too much"):
        copy_stream(io.BytesIO(CONTENT), "f", bounds)


def test_devices_are_refused_and_nothing_is_empty() -> None:
    with pytest.raises(LoadError, match="is a device"):
        open_input("/dev/zero")
    assert DocumentReader([open_input("/dev/null")]).count == 0


def test_a_pattern_loses_no_file_by_another_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_bytes(b"a: b\n")
    (tmp_path / "more" / "empty").mkdir(parents=True)
    (tmp_path / "more" / "pod.yaml").write_bytes(b"a: b\n")
    told: list[str] = []
    paths = [str(tmp_path / "first.yaml"), str(tmp_path / "more" / "*")]
    with pytest.raises(LoadError, match="no YAML files in this folder"):
        list(open_resources(paths, told.append))
    assert not told
    # A single file that is missing is told, as Kyverno does it.
    assert len(list(open_resources([paths[0], str(tmp_path / "none.yaml")], told.append))) == 1
    assert "none.yaml" in told[0]
