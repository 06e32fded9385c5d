"""Archives in a message: files as tar has them, and no way to make reading them costly."""

import io
import tarfile

import pytest

from lictor.core.evaluate.manifests.message import read_archive


def pack(*entries: tuple[str, bytes | str], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """Names with contents; a text instead of contents is a type of entry."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type = content.encode()
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


LONG = "x" * 90 + "/" + "y" * 90 + ".yaml"
LONGER = "x" * 300 + ".yaml"
ONE = pack(("a.yaml", b"content"))


@pytest.mark.parametrize(
    ("data", "files"),
    [
        (ONE, {"a.yaml": b"content"}),
        (pack(("a", tarfile.DIRTYPE.decode()), ("a/./b.yaml", b"1"), ("/c", b"")), {"a/b.yaml": b"1", "c": b""}),
        (pack(("a", b"1"), ("a", b"2" * 2000)), {"a": b"2" * 2000}),
        (pack(("../a", b"1"), ("b", b"2")), {"b": b"2"}),
        (pack((LONG, b"1")), {LONG: b"1"}),
        (pack((LONGER, b"1"), ("b", b"2"), form=tarfile.PAX_FORMAT), {LONGER: b"1", "b": b"2"}),
        (pack((LONGER, b"1"), ("b", b"2"), form=tarfile.GNU_FORMAT), {LONGER: b"1", "b": b"2"}),
        (pack(), {}),
        (b"", {}),
        (ONE[:1024], {"a.yaml": b"content"}),
    ],
)  # fmt: skip
def test_files(data, files):
    assert read_archive(data) == files


def change(data: bytes, start: int, field: bytes) -> bytes:
    """Another field in the first header, with a checksum to fit."""
    header = bytearray(data[:512])
    header[start : start + len(field)] = field
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + data[512:]


PAX = pack((LONGER, b"1"), form=tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    "data",
    [
        pack(("a", tarfile.SYMTYPE.decode())),
        pack(("a", "g")),
        b"x" * 2000,
        b"x",
        ONE[:515],
        ONE[:511],
        change(ONE, 124, b"\x80" + b"\xff" * 11),
        change(ONE, 124, b"77777777777\0"),
        change(ONE, 124, b"-1\0"),
        b"b" + ONE[1:],
        PAX.replace(b" path=", b" GNU.sparse.major="),
        PAX[:512] + b"99999999 path=a\n" + PAX[528:],
        PAX[:512] + b"0 path=a\n\0\0\0\0\0\0\0" + PAX[528:],
        PAX[:512] + b"no number at all" + PAX[528:],
    ],
)
def test_what_is_no_archive(data):
    with pytest.raises(ValueError):  # noqa: PT011  (the words are for people)
        read_archive(data)


def test_many_names_in_a_row_are_read_in_a_row():
    """A reader that calls itself for each would fall over."""
    name = pack((LONGER, b"1"), form=tarfile.GNU_FORMAT)
    assert read_archive(name[:1024] * 5000 + ONE) == {LONGER: b"content"}
