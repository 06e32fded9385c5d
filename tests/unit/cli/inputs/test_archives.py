"""Archives give their files as inputs, within bounds, and never what lies elsewhere."""

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from lictor.cli.inputs.archives import unpack
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.inputs import Input, KeptInput, open_input
from lictor.core.errors import LoadError

PODS = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{n}"}} for n in range(6)]
FILES = {
    "README.md": b"no resources",
    "a/first.yaml": b"".join(b"---\n" + json.dumps(pod).encode() + b"\n" for pod in PODS[:2]),
    "a/.hidden.yaml": b"kind: [",
    "b/list.json": json.dumps({"kind": "List", "items": PODS[2:4], "apiVersion": "v1"}).encode(),
    "c.jsonl": b"".join(json.dumps(pod).encode() + b"\n" for pod in PODS[4:]),
}


def make_tar(files: dict[str, bytes], mode: Literal["w", "w:gz"] = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def make_zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.mkdir("a")
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def read_all(found: Input) -> bytes:
    return found.read(0, found.size)


ARCHIVES = {
    "tar": make_tar(FILES),
    "tar.gz": make_tar(FILES, "w:gz"),
    "zip": make_zip(FILES),
    "stored zip": make_zip(FILES, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES)
def test_the_files_of_an_archive_are_judged(
    tmp_path: Path, content: bytes, *, is_file: bool
) -> None:
    (tmp_path / "odd-name").write_bytes(content)
    path = str(tmp_path / "odd-name")
    found = DocumentReader(unpack(open_input(path, keep=not is_file), keep=not is_file))
    paths = [each.path.removeprefix(path) for each in found.inputs]
    assert paths == ["/a/first.yaml", "/b/list.json", "/c.jsonl"]
    assert list(found.list_resources()) == [
        {**pod, "metadata": {**pod["metadata"], "namespace": "default"}} for pod in PODS
    ]


def test_a_compressed_file_is_read() -> None:
    (found,) = unpack(KeptInput("f", gzip.compress(FILES["c.jsonl"])))
    assert (found.path, read_all(found)) == ("f", FILES["c.jsonl"])


LARGE = b"x" * (300 << 10)
POD = b"kind: Pod\n"


def make_tar_of(member: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(member)
    return made.getvalue()


def make_link(name: str, kind: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return make_tar_of(member)


def make_zipped_link() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        member = zipfile.ZipInfo("a.yaml")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    return made.getvalue()


def make_encrypted() -> bytes:
    content = bytearray(make_zip({"a.yaml": POD}))
    content[content.index(b"PK\x01\x02", 100) + 8] |= 1
    return bytes(content)


def make_negative() -> bytes:
    """A file whose size leads back to its own header."""
    header = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (-512).to_bytes(12, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    return make_tar({"b.txt": b""})[:512] + bytes(header) + bytes(1024)


def make_header(**fields: object) -> bytes:
    """A file with more about it in a header of its own."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.yaml")
        member.pax_headers = {name: str(value) for name, value in fields.items()}
        member.size = len(POD)
        archive.addfile(member, io.BytesIO(POD))
    return made.getvalue()


def make_name_headers() -> bytes:
    """Headers without end that say what the next file is called."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2
    return (header.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * 2000


def damage(content: bytes, offset: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 0xFF]) + content[offset + 1 :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (make_tar({"../a.yaml": POD}), "leads out of the archive"),
        (make_tar({"a/../../b.txt": POD}), "leads out of the archive"),
        (make_tar({"/etc/a.yaml": POD}), "leads out of the archive"),
        (make_zip({"../a.yaml": POD}), "leads out of the archive"),
        (make_zip({"a\\..\\..\\b.yaml": POD}), "leads out of the archive"),
        (make_link("a.yaml", tarfile.SYMTYPE), "f/a.yaml: is a link"),
        (make_link("a.yaml", tarfile.LNKTYPE), "f/a.yaml: is a link"),
        (make_link("a.yaml", tarfile.FIFOTYPE), "f/a.yaml: is a link or no plain file"),
        (make_zipped_link(), "f/a.yaml: is a link"),
        (make_encrypted(), "f/a.yaml: is encrypted"),
        (make_negative(), "no sound tar"),
        (make_header(size=-512), "a size is wrong"),
        (make_header(path="\x1b[2J.yaml"), r"'\\x1b\[2J.yaml' has signs in its name"),
        (make_header(path="a\n.yaml"), "has signs in its name"),
        (make_zip({"\u202elmay.yaml": POD}), "has signs in its name"),
        (make_zip({"ä.yaml": POD}).replace("ä".encode(), b"\xff\xfe"), "no sound zip"),
        (make_name_headers(), "too many headers"),
        (make_zip({"a.yaml": POD}, zipfile.ZIP_BZIP2), "f/a.yaml: is compressed neither"),
        (make_tar({"README.md": b""}), "no files with resources"),
        (make_zip({"README.md": b""}), "no files with resources"),
        # Cut off, at every place that a reader may take for the end.
        (make_tar({"a.yaml": LARGE})[:10_000], "cut off"),
        (make_tar({"a.yaml": LARGE})[: 512 + len(LARGE)], "cut off"),
        (make_tar({"a.yaml": POD, "b.yaml": POD})[:1024], "cut off"),
        (make_tar({"a.yaml": POD, "b.yaml": POD})[:1300], "cut off|no sound tar"),
        (make_tar({"a.yaml": LARGE}, "w:gz")[:-20], "cut off"),
        (gzip.compress(LARGE)[:-4], "cut off"),
        (make_zip({"a.yaml": LARGE})[:-30], "no sound zip"),
        (make_zip({"a.yaml": LARGE}, zipfile.ZIP_STORED)[: 200 << 10], "no sound zip"),
        # Damaged.
        (damage(gzip.compress(os.urandom(5000)), 2500), "no sound gzip|cut off"),
        (damage(make_zip({"a.yaml": LARGE}, zipfile.ZIP_STORED), 9000), "no sound zip"),
        # Made to fill disks.
        (gzip.compress(bytes(64 << 20)), "unpacks to more than 16777216 bytes"),
        (make_zip({"a.yaml": bytes(64 << 20)}), "unpacks to more than 16777216 bytes"),
        (make_zip({f"{n}.yaml": bytes(4 << 20) for n in range(5)}), "unpacks to more than"),
    ],
)
def test_what_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        list(unpack(KeptInput("f", content)))


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_archives_of_countless_files_are_refused(make) -> None:
    content = make({f"{number}.txt": b"" for number in range(30)})
    with pytest.raises(LoadError, match="more than 20 files"):
        list(unpack(KeptInput("f", content), max_members=20))


def test_a_header_that_claims_to_be_huge_is_not_read() -> None:
    member = tarfile.TarInfo("a.yaml")
    member.type, member.size = tarfile.XHDTYPE, 100 << 20
    content = member.tobuf(tarfile.USTAR_FORMAT) + bytes(100 << 20)
    with pytest.raises(LoadError, match="header or directory of"):
        list(unpack(KeptInput("f", content)))


def test_a_long_header_is_not_read_sign_by_sign(tmp_path: Path) -> None:
    class CountedInput(KeptInput, frozen=True):
        reads: list[int]

        def read(self, start: int, end: int) -> bytes:
            self.reads.append(end - start)
            return self.content[start:end]

    made = io.BytesIO()
    with gzip.GzipFile("n" * 500_000, "wb", fileobj=made) as stream:
        stream.write(POD)
    given = CountedInput("f", made.getvalue(), [])
    (found,) = unpack(given)
    assert read_all(found) == POD
    assert len(given.reads) < 1000
