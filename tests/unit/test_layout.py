"""The layout of the source is the one of ARCHITECTURE.md, without exceptions."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lictor"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\| [^|]+ \| `([^`]+)` \|$", PAGE, re.M)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def test_the_page_answers_at_least_thirty_questions() -> None:
    assert len(ENTRIES) >= 30
    assert len(set(ENTRIES)) == len(ENTRIES)


@pytest.mark.parametrize("path", ENTRIES)
def test_what_the_table_names_is_there(path: str) -> None:
    assert (SOURCE / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+(?:/\w+)+\.py)`", PAGE))))
def test_what_the_page_names_is_there(path: str) -> None:
    assert (SOURCE / path).is_file()


def test_the_tree_names_every_package() -> None:
    tree = PAGE.partition("    src/lictor/\n")[2].partition("\n\n")[0]
    named = set(re.findall(r"^ {6}(\w+)/", tree, re.M))
    assert named == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    addons = set(re.findall(r"[a-z]+", tree.rpartition("addons/")[2].replace("(with `up`)", "")))
    assert addons == {path.parent.name for path in (SOURCE / "addons").glob("*/__init__.py")}


def test_the_page_says_the_order_that_is_checked() -> None:
    (layers,) = [each["layers"] for each in CONTRACTS if each.get("containers") == ["lictor"]]
    assert " > ".join(f"`{layer}`" for layer in layers[1:]) in PAGE.replace("\n", " ")


def test_no_contract_has_exceptions() -> None:
    assert not [each["name"] for each in CONTRACTS if "ignore_imports" in each]
