"""The folder of modules: written whole, listed, saved and loaded."""

import gzip
import io
import tarfile

import pytest

from lictor.addons.kubewarden.modules import module_folder
from lictor.addons.kubewarden.modules.module_address import parse_module_address
from lictor.addons.kubewarden.modules.module_folder import ModuleFolder
from lictor.core.errors import LictorError, UsageError

MODULE = b"\x00asm\x01\x00\x00\x00"
DEMO = parse_module_address("registry://r.example:5000/policies/demo:v1")
FILE = parse_module_address("https://f.example:8443/demo.wasm")


@pytest.fixture
def folder(tmp_path):
    return ModuleFolder(tmp_path / "store", 1024)


def test_modules_are_listed_by_address(folder) -> None:
    folder.write(FILE, MODULE + b"x")
    path = folder.write(DEMO, MODULE)
    assert path == folder.path / "registry/r.example:5000/policies/demo:v1"
    (folder.path / "registry" / "stray").write_bytes(MODULE)
    assert [(one.address.text, one.size) for one in folder.list_modules()] == [
        (FILE.text, 9),
        (DEMO.text, 8),
    ]
    (found,) = folder.find_by_digest(folder.find(DEMO).compute_digest()[:12])
    assert found.address == DEMO


def test_removing_leaves_no_empty_folders(folder) -> None:
    folder.write(DEMO, MODULE)
    folder.remove(DEMO)
    assert list(folder.path.iterdir()) == []
    with pytest.raises(UsageError, match=r"Cannot find policy with uri: registry://r.example"):
        folder.remove(DEMO)


def test_an_archive_has_the_same_tree(folder, tmp_path) -> None:
    folder.write(DEMO, MODULE)
    folder.write(FILE, MODULE)
    archive = tmp_path / "all.tar.gz"
    folder.save([DEMO, FILE], archive)
    with tarfile.open(archive, "r:gz") as file:
        assert file.getnames() == [
            "registry/r.example:5000/policies/demo:v1",
            "https/f.example:8443/demo.wasm",
        ]
    other = ModuleFolder(tmp_path / "other", 1024)
    assert other.load(archive) == [DEMO, FILE]
    assert other.read(DEMO) == MODULE


def test_what_is_missing_cannot_be_saved(folder, tmp_path) -> None:
    with pytest.raises(UsageError, match="Cannot find policy"):
        folder.save([DEMO], tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("../outside", MODULE, tarfile.REGTYPE),
        ("/etc/x", MODULE, tarfile.REGTYPE),
        ("registry/r.example/../../x:v1", MODULE, tarfile.REGTYPE),
        ("registry/r.example/p:v1", b"", tarfile.SYMTYPE),
        ("registry/r.example/p:v1", b"no module", tarfile.REGTYPE),
        ("registry/r.example/p:v1", MODULE + bytes(2000), tarfile.REGTYPE),
    ],
)
def test_archives_cannot_write_anything_else(folder, tmp_path, name, content, kind) -> None:
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size, entry.linkname = kind, len(content), "/etc/passwd"
        file.addfile(entry, io.BytesIO(content))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LictorError):
        folder.load(archive)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_bomb_of_headers_is_not_unpacked(folder, tmp_path, kind) -> None:
    archive = tmp_path / "bomb.tar.gz"
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 2**33
    with gzip.open(archive, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.write(b"0" * 2**20)
    with pytest.raises(UsageError, match="header that is too long"):
        folder.load(archive)


def test_an_archive_holds_so_much(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module_folder, "_MOST_UNPACKED", 8192)
    for number in range(8):
        folder.write(parse_module_address(f"registry://r.example/p:{number}"), MODULE + bytes(1000))
    archive = tmp_path / "all.tar.gz"
    folder.save([each.address for each in folder.list_modules()], archive)
    with pytest.raises(UsageError, match="holds more than"):
        ModuleFolder(tmp_path / "other", 2048).load(archive)


def test_headers_without_end_are_refused(folder, tmp_path) -> None:
    archive = tmp_path / "many.tar.gz"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 0
    with gzip.open(archive, "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) * 5000)
    with pytest.raises(UsageError, match="cannot unpack file"):
        folder.load(archive)


@pytest.mark.parametrize("content", [b"", b"text", b"\x1f\x8b\x08 broken"])
def test_what_is_no_archive_is_refused(folder, tmp_path, content) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(UsageError, match="cannot unpack file"):
        folder.load(tmp_path / "x.tar.gz")


def test_half_an_archive_is_refused(folder, tmp_path) -> None:
    folder.write(DEMO, MODULE)
    archive = tmp_path / "all.tar.gz"
    folder.save([DEMO], archive)
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(UsageError, match="cannot unpack file"):
        folder.load(archive)
