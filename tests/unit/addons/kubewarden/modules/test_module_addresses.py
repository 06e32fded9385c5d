"""Addresses of policy modules, and their places in the folder."""

from pathlib import Path

import pytest

from lictor.addons.kubewarden.modules.module_address import (
    locate_in_store,
    parse_module_address,
    read_store_path,
)
from lictor.core.errors import ModuleError

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "full", "place"),
    [
        ("registry://r.example:5000/p/demo:v1", None, "registry/r.example:5000/p/demo:v1"),
        (
            "r.example:5000/p/demo:v1",
            "registry://r.example:5000/p/demo:v1",
            "registry/r.example:5000/p/demo:v1",
        ),
        (
            "registry://r.example/p/demo",
            "registry://r.example/p/demo:latest",
            "registry/r.example/p/demo:latest",
        ),
        (f"registry://r.example/p@{DIGEST}", None, f"registry/r.example/p@{DIGEST}"),
        (f"registry://r.example/p:v1@{DIGEST}", None, f"registry/r.example/p:v1@{DIGEST}"),
        ("ffffff", "registry://docker.io/library/ffffff:latest", None),
        ("https://f.example:8443/a/demo.wasm", None, "https/f.example:8443/a/demo.wasm"),
        ("HTTP://f.example/demo.wasm", "http://f.example/demo.wasm", "http/f.example/demo.wasm"),
    ],
)
def test_an_address_has_one_place(text, full, place) -> None:
    address = parse_module_address(text)
    assert address.text == (full or text)
    if place is not None:
        assert locate_in_store(address) == Path(place)
        assert read_store_path(Path(place)) == address


def test_a_file_is_where_its_path_says() -> None:
    assert parse_module_address("file:///a%20b/c.wasm").path == "/a b/c.wasm"
    assert parse_module_address("file://c.wasm").path == "c.wasm"
    assert not parse_module_address("file:///a.wasm").is_kept
    # Two queries would share one place.
    assert not parse_module_address("https://f.example/a.wasm?x=1").is_kept


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://f.example/x.wasm", "unknown scheme ftp"),
        ("file://", "names no file"),
        ("https:///x.wasm", "no URL"),
        ("https://f.example", "no path"),
        ("https://f.example/../x.wasm", "no path"),
        ("https://f.example/a//x.wasm", "no path"),
        ("https://me:secret@f.example/x.wasm", "must not hold a name or a password"),
        ("registry://r.example/UPPER:v1", "lowercase"),
        ("registry://r.example/p@sha256:12", "invalid"),
        ("registry://../../etc/passwd", "no reference"),
        ("https://f.example/" + "a" * 256, "no path"),
        ("registry://r.example/p:v1\x00", "no address"),
        ("x" * 3000, "no address"),
    ],
)
def test_what_is_no_address_is_refused(text, reason) -> None:
    with pytest.raises(ModuleError, match=reason) as raised:
        parse_module_address(text)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "place",
    [
        "x",
        "file/a.wasm",
        "registry/r.example/p",
        "registry/r.example/../x:v1",
        "ftp/h/x",
        "https/h/.new-a",
    ],
)
def test_what_has_no_address_is_not_listed(place) -> None:
    assert read_store_path(Path(place)) is None
