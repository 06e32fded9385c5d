"""Are the generated facts complete? A generator that misses a Go construct runs through silently."""

import re
from collections.abc import Iterator

import pytest

from lictor.core.facts.facts import RELEASE, load_section, load_served_kinds, load_type_facts

WORD = re.compile(r"\d+(?P<mark>[~=*]?)(?P<name>.+)")


def list_wire_fields(name: str) -> Iterator[str]:
    """Fields with protobuf numbers, also those of embedded types."""
    for word in load_section("wire").get(name, "").split():
        found = WORD.fullmatch(word)
        assert found, f"{name}: {word!r} has no field name"
        if found["mark"] == "~":
            yield from list_wire_fields(found["name"])
        else:
            yield found["name"]


def list_fields() -> Iterator[tuple[str, set[str]]]:
    for name, form in load_section("types").items():
        if isinstance(form, dict) and "fields" in form:
            yield name, set(form["fields"])


def test_the_facts_are_those_of_the_release_that_lictor_follows():
    assert load_section("release")["kubernetes"] == RELEASE


def test_no_field_name_is_empty():
    assert [name for name, fields in list_fields() if "" in fields] == []
    described = load_type_facts().items()
    lists = ("required", "silent", "kept", "formats", "enums", "patches")
    assert [name for name, facts in described if any("" in getattr(facts, k) for k in lists)] == []


def test_every_field_has_a_protobuf_number():
    # Fails if embedded structs are not recognised: their fields are missing then.
    missing = {
        name: fields - set(list_wire_fields(name)) - {"apiVersion", "kind"}
        for name, fields in list_fields()
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Of embedded structs.
        ("core.v1.EphemeralContainer", {"silent": "workingDir", "enums": "imagePullPolicy"}),
        ("admissionregistration.v1.RuleWithOperations", {"enums": "scope"}),
        # A key of one list is no key of another type.
        ("core.v1.PodCondition", {"silent": "reason"}),
        ("core.v1.Secret", {"silent": "type"}),
        # OpenAPI does not require it, but Go writes it.
        ("discovery.v1.EndpointSlice", {"kept": "endpoints"}),
    ],
)
def test_facts_of_fields(name, expected):
    facts = load_type_facts()[name]
    assert all(field in getattr(facts, key) for key, field in expected.items())


def test_every_embedded_type_is_known():
    known = load_section("wire")
    words = [word for text in known.values() for word in text.split() if "~" in word]
    embedded = {word.partition("~")[2] for word in words}
    assert "core.v1.VolumeSource" in embedded
    assert embedded - set(known) == set()


def test_the_new_kinds_are_served():
    served = load_served_kinds()
    assert "MutatingAdmissionPolicy" in served["admissionregistration.k8s.io/v1"]
    assert "StorageVersionMigration" in served["storagemigration.k8s.io/v1"]
