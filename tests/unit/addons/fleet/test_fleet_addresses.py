"""Which files do addresses name? In stores as in folders, and never with credentials in words."""

import pytest

from lictor.addons.fleet.addresses import list_inputs
from lictor.addons.fleet.stored_inputs import StoredInput, open_file
from lictor.cli.inputs.sources import hide_credentials
from lictor.core.errors import LoadError, UsageError

fsspec = pytest.importorskip("fsspec", reason="fsspec comes with lictor[ray]")


@pytest.fixture
def store():
    """Files in memory, as a bucket would hold them."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    for name in ("b/2.yaml", "b/1.yml", "a.yaml", "b/notes.txt", "b/.hidden/x.yaml", "c/d/3.yaml"):
        files.pipe_file(f"/bucket/{name}", name.encode())
    yield files
    files.store.clear()


def name_all(*paths):
    return [file.name.removeprefix("memory://") for file in list_inputs(paths)]


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("memory://bucket/a.yaml", ["bucket/a.yaml"]),
        ("memory://bucket/b/notes.txt", ["bucket/b/notes.txt"]),
        ("memory://bucket/b", ["bucket/b/1.yml", "bucket/b/2.yaml"]),
        (
            "memory://bucket",
            ["bucket/a.yaml", "bucket/b/1.yml", "bucket/b/2.yaml", "bucket/c/d/3.yaml"],
        ),
        ("memory://bucket/*/*.yaml", ["bucket/b/2.yaml"]),
        ("memory://bucket/**/3.yaml", ["bucket/c/d/3.yaml"]),
    ],
)
def test_files_folders_and_patterns(store, address, names):
    assert name_all(address) == names


def test_the_order_is_that_of_the_paths(store):
    names = name_all("memory://bucket/c", "memory://bucket/a.yaml")
    assert names == ["bucket/c/d/3.yaml", "bucket/a.yaml"]


@pytest.mark.parametrize("address", ["memory://bucket/none", "memory://bucket/*.json"])
def test_an_address_that_names_nothing_is_an_error(store, address):
    with pytest.raises(LoadError) as error:
        list(list_inputs([address]))
    assert error.value.where == address


def test_a_folder_without_yaml_is_an_error(store):
    store.pipe_file("/bucket/e/readme.txt", b"")
    with pytest.raises(LoadError, match="no YAML file below it"):
        list(list_inputs(["memory://bucket/e"]))


def test_ranges_are_read(store):
    (file,) = list_inputs(["memory://bucket/a.yaml"])
    (given,) = open_file(file)
    assert (given.path, given.size) == ("memory://bucket/a.yaml", 6)
    assert (given.read(0, 6), given.read(2, 4), given.read(6, 6)) == (b"a.yaml", b"ya", b"")


def test_a_part_is_fetched_alone_and_keeps_its_place(store):
    (file,) = list_inputs(["memory://bucket/a.yaml"])
    held = StoredInput(file, file.size).hold(2, 5)
    assert (held.size, held.read(2, 5), held.read(3, 4)) == (6, b"yam", b"a")


def test_blocks_join(monkeypatch, store):
    monkeypatch.setattr("lictor.addons.fleet.stored_inputs._BLOCK_BYTES", 4)
    store.pipe_file("/bucket/long.yaml", bytes(range(30)))
    (file,) = list_inputs(["memory://bucket/long.yaml"])
    (given,) = open_file(file)
    for start in range(30):
        for end in range(start, 31):
            assert given.read(start, end) == bytes(range(start, end))


def test_a_file_that_became_shorter_is_an_error(store):
    (file,) = list_inputs(["memory://bucket/a.yaml"])
    store.pipe_file("/bucket/a.yaml", b"a")
    with pytest.raises(LoadError, match="changed while it was read"):
        StoredInput(file, file.size).read(0, 6)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere://bucket/a.yaml", "nothing is known that reads nowhere://"),
        ("abfs://bucket/a.yaml", r"abfs:// needs adlfs; install it with: pip install adlfs"),
        ("zip://a.yaml::memory://b.zip", "addresses within addresses"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(address, message):
    with pytest.raises(UsageError, match=message):
        list(list_inputs([address]))


def test_standard_input_is_no_file_to_share_out():
    with pytest.raises(UsageError, match="standard input cannot be shared out"):
        list(list_inputs(["-"]))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://who:secret@host/a.yaml", "https://host/a.yaml"),
        ("https://host/a.yaml?X-Amz-Signature=secret", "https://host/a.yaml"),
        ("s3://key:secret@bucket/a@b.yaml", "s3://bucket/a@b.yaml"),
        ("s3://key:sec/ret@bucket/a.yaml", "s3://bucket/a.yaml"),
        ("git+https://who:secret@host/a", "git+https://host/a"),
        ("https://host:8443/a@b.yaml", "https://host:8443/a@b.yaml"),
        ("folder/a?.yaml", "folder/a?.yaml"),
    ],
)
def test_credentials_are_not_shown(address, shown):
    assert hide_credentials(address) == shown


def test_an_error_of_a_store_is_told_without_credentials(monkeypatch, store):
    def fail(path, **_):
        raise RuntimeError("GET memory://who:secret@bucket/a.yaml?key=hidden failed")

    monkeypatch.setattr(type(store), "find", lambda self, path, **_: fail(path))
    with pytest.raises(LoadError) as error:
        list(list_inputs(["memory://who:secret@bucket/a.yaml?key=hidden"]))
    assert "secret" not in str(error.value)
    assert "hidden" not in str(error.value)
    assert "failed" in str(error.value)


def test_local_paths_are_listed_as_everywhere(tmp_path):
    (tmp_path / "b.yaml").write_text("x")
    (tmp_path / "a.yml").write_text("xy")
    found = list(list_inputs([str(tmp_path)]))
    assert [(file.name, file.size) for file in found] == [
        (str(tmp_path / "a.yml"), 2),
        (str(tmp_path / "b.yaml"), 1),
    ]


def test_a_further_file_that_is_missing_is_told_and_a_first_one_an_error(tmp_path):
    (tmp_path / "a.yaml").write_text("x")
    told = []
    found = list(list_inputs([str(tmp_path / "a.yaml"), "missing.yaml"], told.append))
    assert len(found) == 1
    assert "missing.yaml" in told[0]
    with pytest.raises(LoadError):
        list(list_inputs(["missing.yaml"], told.append))


def test_a_url_that_cannot_be_fetched_is_told_without_its_signature():
    # Port 9 of loopback: nobody listens there.
    (file,) = list_inputs(["http://who:secret@127.0.0.1:9/a.yaml?signature=hidden"])
    with pytest.raises(LoadError) as error:
        list(open_file(file))
    assert "secret" not in str(error.value)
    assert "hidden" not in str(error.value)
    assert error.value.where == "http://127.0.0.1:9/a.yaml"
