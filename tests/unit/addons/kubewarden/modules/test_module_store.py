"""Policy modules: fetched from files, servers and registries, checked, kept and compiled once."""

import hashlib
import os
import socket
import threading
import time
from pathlib import Path

import orjson
import pytest
import wasmtime
from registry_server import RegistryServer, digest_of

from lictor.addons.kubewarden.modules.module_address import parse_module_address
from lictor.addons.kubewarden.modules.module_folder import find_module_folder
from lictor.addons.kubewarden.modules.module_sources import ModuleSources
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.core.errors import (
    CorruptContentError,
    ImageNotFoundError,
    LookupFailedError,
    ModuleError,
)
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.images.manifests import CONFIG_TYPE, LAYER_TYPE
from lictor.images.settings import RegistrySettings

MODULE = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 1))'))
OTHER = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 2))'))
QUICK = RegistrySettings(
    exchange_seconds=6.0, connect_seconds=6.0, question_seconds=8.0, attempts=1
)


@pytest.fixture
def server():
    with RegistryServer() as started:
        started.take_pushes()
        yield started


@pytest.fixture
def make_store(tmp_path):
    """Stores over one folder; `insecure` are servers without TLS."""

    def make(*insecure: RegistryServer, **settings) -> ModuleStore:
        sources = ModuleSources(insecure=frozenset(each.name for each in insecure))
        settings = {
            "folder": tmp_path / "store",
            "private_folder": tmp_path / "private",
            "sources": sources,
            "network": QUICK,
            **settings,
        }
        return ModuleStore(ModuleSettings(**settings))

    return make


def put_module(server: RegistryServer, content: bytes, tag: str = "v1", **layer) -> str:
    described = {"mediaType": LAYER_TYPE, "digest": digest_of(content), "size": len(content)}
    server.put_blob("p/demo", content)
    config = {"mediaType": CONFIG_TYPE, "digest": server.put_blob("p/demo", b"{}"), "size": 2}
    document = {"schemaVersion": 2, "config": config, "layers": [{**described, **layer}]}
    return server.put_manifest("p/demo", document, tag)


# --- files


def test_a_file_is_loaded_once(tmp_path, make_store) -> None:
    path = tmp_path / "a.wasm"
    path.write_bytes(MODULE)
    store = make_store()
    module = store.load(f"file://{path}")
    assert module.digest == hashlib.sha256(MODULE).hexdigest()
    assert store.load(f"file://{path}") is module
    path.write_bytes(OTHER)
    assert store.load(f"file://{path}").digest == hashlib.sha256(OTHER).hexdigest()


def test_the_folder_of_modules_is_place_enough(tmp_path) -> None:
    """A server whose only writable folder is the one that it was told of."""
    (tmp_path / "a.wasm").write_bytes(MODULE)
    store = ModuleStore(ModuleSettings(folder=tmp_path / "store"))
    store.load(f"file://{tmp_path}/a.wasm")
    assert list((tmp_path / "store" / ".lictor" / "compiled").rglob("*.code"))
    assert list(store.folder.list_modules()) == []


def test_a_user_without_a_home_has_a_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_module_folder() == tmp_path / "kubewarden" / "store"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert find_module_folder() == tmp_path / "home" / ".cache" / "kubewarden" / "store"

    def fail() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", fail)
    assert find_module_folder().parents[1].is_dir()


def test_modules_of_all_stores_have_one_engine_whose_clock_runs(tmp_path, make_store) -> None:
    (tmp_path / "loop.wasm").write_bytes(
        wasmtime.wat2wasm('(module (func (export "f") (loop br 0)))')
    )
    (tmp_path / "a.wasm").write_bytes(MODULE)
    module = make_store().load(f"file://{tmp_path}/loop.wasm")
    assert make_store().load(f"file://{tmp_path}/a.wasm").engine is module.engine
    guest = wasmtime.Store(module.engine)
    guest.set_epoch_deadline(5)
    function = wasmtime.Instance(guest, module.native, []).exports(guest)["f"]
    with pytest.raises(wasmtime.Trap, match="interrupt"):
        function(guest)


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (None, LookupFailedError, "No such file"),
        (b"text", ModuleError, "no WebAssembly module"),
        (b"\x00asm\x01\x00\x00\x00\xff", ModuleError, "cannot be compiled|cut off"),
        (MODULE + bytes(5000), LookupFailedError, "more than"),
    ],
)
def test_what_is_no_module_is_refused(tmp_path, make_store, content, error, reason) -> None:
    if content is not None:
        (tmp_path / "a.wasm").write_bytes(content)
    with pytest.raises(error, match=reason):
        make_store(module_bytes=5000).load(f"file://{tmp_path}/a.wasm")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path, make_store, kind) -> None:
    path = tmp_path / "a.wasm"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(LookupFailedError):
        make_store().load(f"file://{path}")


def test_files_come_only_from_folders_that_were_named(tmp_path, make_store) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "inside-not"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.wasm").write_bytes(MODULE)
    (inside / "link.wasm").symlink_to(outside / "a.wasm")
    store = make_store(file_folders=(inside,))
    assert store.load(f"file://{inside}/a.wasm")
    for path in (f"{outside}/a.wasm", f"{inside}/link.wasm", f"{inside}/../inside-not/a.wasm"):
        with pytest.raises(ModuleError, match="not in a folder"):
            store.load(f"file://{path}")
    with pytest.raises(ModuleError, match="not in a folder"):
        make_store(file_folders=()).load(f"file://{inside}/a.wasm")


# --- registries


def test_a_module_comes_from_a_registry_and_is_kept(server, make_store, tmp_path) -> None:
    put_module(server, MODULE)
    store = make_store(server)
    assert store.load(f"{server.name}/p/demo:v1").digest == digest_of(MODULE)[7:]
    kept = tmp_path / "store" / "registry" / server.name / "p" / "demo:v1"
    assert kept.read_bytes() == MODULE
    asked = len(server.asked)
    make_store(server).load(f"registry://{server.name}/p/demo:v1")
    # What the tag means now, and not the module again.
    assert [path for path in server.paths[asked:] if "/blobs/" in path] == []


def test_a_tag_that_moved_is_fetched_again(server, make_store) -> None:
    put_module(server, MODULE)
    address = f"registry://{server.name}/p/demo:v1"
    assert make_store(server).fetch(address).content == MODULE
    put_module(server, OTHER)
    assert make_store(server).fetch(address).content == OTHER
    assert make_store(server).folder.read(parse_module_address(address)) == OTHER


def test_what_was_kept_is_used_while_nobody_answers(make_store) -> None:
    with RegistryServer() as server:
        put_module(server, MODULE)
        address = f"registry://{server.name}/p/demo:v1"
        make_store(server).fetch(address)
    assert make_store(server).fetch(address).content == MODULE
    with pytest.raises(LookupFailedError):
        make_store(server).fetch(f"registry://{server.name}/p/other:v1")
    # Others' modules are not lent to a policy of a namespace.
    with pytest.raises(LookupFailedError):
        make_store(server).fetch(address, "team")


def test_what_was_withdrawn_is_not_used_any_more(server, make_store) -> None:
    put_module(server, MODULE)
    address = f"registry://{server.name}/p/demo:v1"
    make_store(server).fetch(address)
    server.contents.clear()
    with pytest.raises(ImageNotFoundError):
        make_store(server).fetch(address)


def test_a_pinned_module_is_asked_for_once(server, make_store, tmp_path) -> None:
    digest = put_module(server, MODULE)
    address = f"registry://{server.name}/p/demo@{digest}"
    assert make_store(server).fetch(address).manifest_digest == digest
    asked = len(server.asked)
    assert make_store(server).fetch(address).content == MODULE
    assert len(server.asked) == asked
    # Whoever changes what is kept changes nothing: it is compared, and fetched again.
    kept = tmp_path / "store" / "registry" / server.name / "p" / f"demo@{digest}"
    kept.write_bytes(OTHER)
    assert make_store(server).fetch(address).content == MODULE
    for manifest in (tmp_path / "private" / "manifests").iterdir():
        manifest.write_bytes(b"{}")
    assert make_store(server).fetch(address).content == MODULE


def test_another_manifest_than_the_pinned_one_is_refused(server, make_store) -> None:
    digest = put_module(server, MODULE)
    path = f"/v2/p/demo/manifests/{digest}"
    server.contents[path] = server.contents[path] + b" "
    with pytest.raises(CorruptContentError):
        make_store(server).fetch(f"{server.name}/p/demo@{digest}")


def test_a_tampered_layer_is_refused(server, make_store, tmp_path) -> None:
    put_module(server, MODULE)
    server.contents[f"/v2/p/demo/blobs/{digest_of(MODULE)}"] = OTHER
    with pytest.raises(CorruptContentError, match="digest"):
        make_store(server).load(f"{server.name}/p/demo:v1")
    assert not list((tmp_path / "store").rglob("demo*"))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ({"size": len(MODULE) + 1}, "the manifest declares"),
        ({"size": 10**12}, "the limit is"),
        ({"size": -1}, "the limit is"),
        ({"size": True}, "no size"),
        ({"mediaType": "application/vnd.oci.image.layer.v1.tar"}, "its layer is"),
        ({"digest": None}, "no digest"),
    ],
)
def test_artifacts_that_are_no_policy_are_refused(server, make_store, layer, reason) -> None:
    put_module(server, MODULE, **layer)
    with pytest.raises((ModuleError, LookupFailedError), match=reason):
        make_store(server).fetch(f"{server.name}/p/demo:v1")


def test_a_huge_layer_is_not_read(server, make_store) -> None:
    huge = MODULE + bytes(300_000)
    put_module(server, huge, size=1000)
    with pytest.raises(LookupFailedError, match="more than 100000 bytes"):
        make_store(server, module_bytes=100_000).fetch(f"{server.name}/p/demo:v1")


def test_an_index_is_no_policy(server, make_store) -> None:
    server.put_manifest("p/demo", {"schemaVersion": 2, "manifests": []}, "v1")
    with pytest.raises(ModuleError, match="index"):
        make_store(server).fetch(f"{server.name}/p/demo:v1")


def test_who_has_no_tls_must_be_named(server, make_store) -> None:
    put_module(server, MODULE)
    with pytest.raises(LookupFailedError):
        make_store().fetch(f"{server.name}/p/demo:v1")
    assert server.asked == []


def test_a_registry_that_keeps_silent_is_not_waited_for(make_store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"localhost:{silent.getsockname()[1]}"
        sources = ModuleSources(insecure=frozenset([name]))
        begin = time.monotonic()
        with pytest.raises(LookupFailedError):
            make_store(sources=sources).load(f"{name}/p/demo:v1")
        assert time.monotonic() - begin < 14


def test_a_namespace_may_use_so_many_modules(tmp_path, make_store) -> None:
    for name, content in (("a", MODULE), ("b", OTHER)):
        (tmp_path / f"{name}.wasm").write_bytes(content)
    store = make_store(modules_per_namespace=1)
    first = store.load(f"file://{tmp_path}/a.wasm", "team")
    assert store.load(f"file://{tmp_path}/a.wasm", "team") is first
    with pytest.raises(ModuleError, match="use 1 modules already"):
        store.load(f"file://{tmp_path}/b.wasm", "team")
    assert store.load(f"file://{tmp_path}/b.wasm", "others")
    del first
    assert store.load(f"file://{tmp_path}/b.wasm", "team")


# --- inside addresses


@pytest.mark.parametrize("namespace", ["", "team"])
def test_addresses_inside_are_not_asked(server, make_store, namespace) -> None:
    put_module(server, MODULE)
    store = make_store()
    for address in (f"{server.name}/p/demo:v1", f"https://{server.name}/x.wasm"):
        if namespace:
            with pytest.raises(LookupFailedError, match="blocked"):
                store.fetch(address, namespace)
    assert bool(server.asked) is False
    with pytest.raises(LookupFailedError, match="blocked"):
        store.fetch("registry://169.254.169.254/p/demo:v1", namespace)


def test_a_redirect_does_not_lead_inside(server, make_store) -> None:
    put_module(server, MODULE)
    server.handle = lambda path, _: (
        (307, {"Location": "http://169.254.169.254/latest"}, b"")
        if "/blobs/" in path or path.endswith(".wasm")
        else None
    )
    store = make_store(server)
    for address in (f"{server.name}/p/demo:v1", f"https://{server.name}/x.wasm"):
        with pytest.raises(LookupFailedError, match=r"169\.254\.169\.254"):
            store.fetch(address)


# --- other servers


@pytest.mark.parametrize("form", ["registry://{}/p/demo:v1", "https://{}/a/demo.wasm"])
def test_what_policies_of_a_namespace_name_does_not_fill_the_disk(
    server, make_store, tmp_path, form
) -> None:
    put_module(server, MODULE)
    server.contents["/a/demo.wasm"] = MODULE
    assert make_store(server).fetch(form.format(server.name), "team").content == MODULE
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "demo" in path.name] == []


def test_a_module_comes_from_a_server(server, make_store, tmp_path) -> None:
    server.contents["/a/demo.wasm"] = MODULE
    store = make_store(server)
    assert store.fetch(f"http://{server.name}/a/demo.wasm").content == MODULE
    assert store.fetch(f"https://{server.name}/a/demo.wasm").content == MODULE
    assert (tmp_path / "store" / "https" / server.name / "a" / "demo.wasm").read_bytes() == MODULE
    server.contents["/a/demo.wasm"] = OTHER
    assert store.fetch(f"https://{server.name}/a/demo.wasm").content == OTHER
    server.contents["/a/demo.wasm"] = b"<html>"
    with pytest.raises(ModuleError, match="no WebAssembly module"):
        store.fetch(f"https://{server.name}/a/demo.wasm")
    with pytest.raises(ImageNotFoundError):
        store.fetch(f"https://{server.name}/none.wasm")


def test_plain_http_must_be_allowed(server, make_store) -> None:
    server.contents["/demo.wasm"] = MODULE
    for scheme in ("http", "https"):
        with pytest.raises(LookupFailedError):
            make_store().fetch(f"{scheme}://{server.name}/demo.wasm")
    assert server.asked == []


def test_a_huge_file_is_not_read(server, make_store) -> None:
    server.contents["/demo.wasm"] = MODULE + bytes(300_000)
    with pytest.raises(LookupFailedError, match="more than 100000 bytes"):
        make_store(server, module_bytes=100_000).fetch(f"http://{server.name}/demo.wasm")


def test_proxies_are_asked(server, make_store, monkeypatch) -> None:
    server.contents["http://modules.example/demo.wasm"] = MODULE
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
    sources = ModuleSources(insecure=frozenset(["modules.example"]))
    assert make_store(sources=sources).fetch("http://modules.example/demo.wasm").content == MODULE


# --- push


def test_a_module_is_pushed_as_kwctl_does(server, make_store) -> None:
    annotations = {
        "io.kubewarden.policy.title": "demo",
        "io.kubewarden.policy.source": "https://example.com/demo.git",
        "io.kubewarden.policy.usage": "one\ntwo\n",
    }
    store = make_store(server)
    address = f"registry://{server.name}/p/demo:v1"
    reference = store.push(MODULE, address, ModuleMetadata(annotations=annotations))
    path = "/v2/p/demo/manifests/v1"
    written = server.contents[path]
    assert server.content_types[path] == "application/vnd.oci.image.manifest.v1+json"
    assert orjson.loads(written) == {
        "schemaVersion": 2,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest_of(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER_TYPE, "digest": digest_of(MODULE), "size": len(MODULE)}],
        "annotations": {
            "io.kubewarden.policy.title": "demo",
            "io.kubewarden.policy.source": "https://example.com/demo.git",
            "org.opencontainers.image.source": "https://example.com/demo.git",
        },
    }
    # Keys in order and no blanks: the digest follows from the module alone.
    assert written.startswith(b'{"annotations":{"io.kubewarden.policy.source":')
    assert reference == f"{server.name}/p/demo@{digest_of(written)}"
    assert store.resolve(address) == digest_of(written)
    assert make_store(server).fetch(address).content == MODULE


def test_a_module_is_pushed_to_a_digest_only_where_it_is_its_own(server, make_store) -> None:
    store = make_store(server)
    reference = store.push(MODULE, f"{server.name}/p/demo:v1", None)
    assert store.push(MODULE, reference, None) == reference
    # What a tag meant before is forgotten.
    other = store.push(OTHER, f"{server.name}/p/demo:v1", None)
    assert store.resolve(f"{server.name}/p/demo:v1") == other.rpartition("@")[2]
    with pytest.raises(ModuleError, match="has the digest"):
        store.push(OTHER, reference, None)


@pytest.mark.parametrize("address", ["https://f.example/x.wasm", "file:///tmp/x.wasm"])
def test_only_registries_are_pushed_to(make_store, address) -> None:
    with pytest.raises(ModuleError, match="no reference to an OCI artifact"):
        make_store().push(MODULE, address, None)


def test_an_upload_goes_nowhere_else(server, make_store) -> None:
    server.handle_post = lambda _path, _body: (202, {"Location": "https://other.example/x"}, b"")
    with pytest.raises(LookupFailedError, match="redirects the upload to"):
        make_store(server).push(MODULE, f"{server.name}/p/demo:v1", None)


def test_a_registry_that_takes_nothing_is_told(server, make_store) -> None:
    server.handle_put = lambda _path, _body, _headers: (403, {}, b"denied")
    with pytest.raises(LookupFailedError, match="refused the upload: HTTP 403 denied"):
        make_store(server).push(MODULE, f"{server.name}/p/demo:v1", None)


def test_threads_compile_a_module_once(tmp_path, make_store) -> None:
    (tmp_path / "a.wasm").write_bytes(MODULE)
    store = make_store()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(store.load(f"file://{tmp_path}/a.wasm")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert len(found) == 8
