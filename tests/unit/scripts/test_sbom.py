"""The lock for running, and the list of parts that is made from it."""

import re
import sys
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))
import check_dependencies  # noqa: E402
import list_licences  # noqa: E402
import make_sbom  # noqa: E402

_RUN = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
_ALL = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def split_blocks(text: str) -> set[str]:
    return set(re.split(r"\n(?=\S)", text.strip()))


def test_the_lock_for_running_is_a_part_of_the_lock() -> None:
    # Run `make lock` where it is not: the image would hold other versions than those that are tested.
    assert [block[:60] for block in split_blocks(_RUN) - split_blocks(_ALL)] == []


def test_it_holds_what_running_takes_and_no_more() -> None:
    entries, problems = check_dependencies.read_lock(_RUN)
    names = {entry.name for entry in entries}
    assert problems == []
    assert list_licences.list_runtime() - names == set()
    assert {"opentelemetry-sdk", "setuptools"} <= names
    assert not names & {"pytest", "mypy", "playwright", "pip", "hypothesis"}


def test_every_package_is_listed_with_its_hashes_and_licence() -> None:
    document = make_sbom.build_document(_RUN)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    listed = {each["name"]: each for each in document["components"]}
    entries, _ = check_dependencies.read_lock(_RUN)
    assert listed.keys() == {entry.name for entry in entries} - make_sbom.BUILDING
    for entry in entries:
        if entry.name in make_sbom.BUILDING:
            continue
        part = listed[entry.name]
        assert part["purl"] == f"pkg:pypi/{entry.name}@{entry.version}"
        [files] = part["externalReferences"]
        assert len(files["hashes"]) == entry.hashes > 0
        [licence] = part["licenses"]
        assert licence.get("expression") or licence["license"]["name"] not in ("", "not told")


def test_who_needs_whom() -> None:
    document = make_sbom.build_document(_RUN)
    needed = {each["ref"].partition("@")[0]: each["dependsOn"] for each in document["dependencies"]}
    top = {each.partition("@")[0] for each in needed["pkg:pypi/lictor"]}
    assert {"pkg:pypi/msgspec", "pkg:pypi/opentelemetry-sdk"} <= top
    assert any(each.startswith("pkg:pypi/httpcore2@") for each in needed["pkg:pypi/httpx2"])
    known = {each["bom-ref"] for each in document["components"]}
    assert {each for names in needed.values() for each in names} <= known
    scopes = {each["name"]: each["scope"] for each in document["components"]}
    assert (scopes["msgspec"], scopes["grpcio"]) == ("required", "optional")


def test_the_same_lock_gives_the_same_document() -> None:
    first, second = make_sbom.build_document(_RUN), make_sbom.build_document(_RUN)
    assert first == second
    uuid.UUID(first["serialNumber"].removeprefix("urn:uuid:"))


@pytest.mark.parametrize("text", ["", "httpx2>=1\n", "httpx2==0.28.1\n"])
def test_a_lock_that_is_none_makes_no_document(text: str) -> None:
    with pytest.raises(SystemExit):
        make_sbom.build_document(text)
