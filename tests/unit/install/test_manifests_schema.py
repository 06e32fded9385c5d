"""Structural schemas from records and shapes, and that notes and records do not drift apart."""

import msgspec
import pytest

from lictor.core.errors import LoadError
from lictor.core.model import cel_policy, matching, policy
from lictor.install import schema
from lictor.install.crds import list_crd_kinds
from lictor.install.schema import SchemaWriter, keep_defaults

OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def test_types_follow_the_record():
    made = SchemaWriter("v1").write_record(matching.ServiceCall)
    assert made == {
        "type": "object",
        "description": "A service other than the API server.",
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "description": made["properties"]["url"]["description"]},
            "headers": made["properties"]["headers"],
            "caBundle": made["properties"]["caBundle"],
        },
    }
    assert made["properties"]["headers"]["items"]["required"] == ["key", "value"]


FIELDS = [
    ("Rule.name", {"type": "string", "maxLength": 63}),
    ("Rule.skipBackgroundRequests", {"type": "boolean", "default": True}),
    ("Rule.preconditions", OPEN),
    ("Validate.assert", {"type": "object", **OPEN}),
    ("Validate.failureAction", {"type": "string", "enum": ["Audit", "Enforce"]}),
    (
        "PodSecurity.level",
        {"type": "string", "enum": ["baseline", "privileged", "restricted"]},
    ),
    ("ForEachValidate.foreach", OPEN),
    ("StaticKeys.signatureAlgorithm", {"type": "string", "default": "sha256"}),
    ("AttestorSet.count", {"type": "integer", "minimum": 1}),
    ("Spec.webhookTimeoutSeconds", {"type": "integer", "format": "int32"}),
]


@pytest.mark.parametrize(("field", "expected"), FIELDS, ids=[field for field, _ in FIELDS])
def test_field(field, expected):
    record, _, name = field.partition(".")
    made = SchemaWriter("v1").write_record(schema._list_records()[record])["properties"][name]
    assert {key: value for key, value in made.items() if key != "description"} == expected


def test_a_version_may_lack_fields_and_be_stricter():
    absent = {policy.Rule: frozenset(["reportProperties"])}
    made = SchemaWriter("v2beta1", absent).write_record(policy.Rule)["properties"]
    assert "reportProperties" not in made
    operators = made["preconditions"]["properties"]["any"]["items"]["properties"]["operator"]
    assert "AnyIn" in operators["enum"]
    assert "In" not in operators["enum"]


def test_lists_are_merged_by_name():
    made = SchemaWriter("v1").write_record(cel_policy.ValidatingSpec)["properties"]["variables"]
    assert made["x-kubernetes-list-type"] == "map"
    assert made["x-kubernetes-list-map-keys"] == ["name"]


def test_one_of_several_is_asked_for():
    entry = SchemaWriter("v1").write_record(matching.ContextEntry)
    assert {"required": ["apiCall"]} in entry["oneOf"]
    assert SchemaWriter("v1").write_record(matching.Match)["not"] == {"required": ["any", "all"]}


def test_unknown_shapes_are_an_error():
    with pytest.raises(LoadError, match="no shape Nothing"):
        SchemaWriter("v1").write_shape("Nothing")


def test_defaults_are_all_that_is_kept():
    spec = SchemaWriter("v1").write_record(cel_policy.ImageValidatingSpec)
    slim = keep_defaults(spec)
    assert slim["x-kubernetes-preserve-unknown-fields"] is True
    assert slim["properties"]["validationConfigurations"] == {
        "type": "object",
        "default": {},
        **OPEN,
        "properties": {
            "mutateDigest": {"type": "boolean", "default": True},
            "verifyDigest": {"type": "boolean", "default": True},
            "required": {"type": "boolean", "default": True},
        },
    }
    assert "validations" not in slim["properties"]


# --- notes and records

NOTES, SHAPES = schema._read_notes()
RECORDS = schema._list_records()


@pytest.mark.parametrize("name", sorted(NOTES))
def test_every_note_is_about_a_field_that_is_there(name):
    record = RECORDS[name.partition("@")[0]]
    known = {field.encode_name for field in msgspec.structs.fields(record)}
    assert set(NOTES[name].fields) <= known


def find_silent(made, path, silent):
    for name, part in made.get("properties", {}).items():
        below = f"{path}.{name}"
        if "description" not in part and "description" not in part.get("items", {}):
            silent.append(below)
        find_silent(part, below, silent)
        find_silent(part.get("items", {}), f"{below}[]", silent)
    return silent


SPECS = sorted({kind.spec for kind in list_crd_kinds() if kind.spec in RECORDS})


@pytest.mark.parametrize("spec", SPECS)
def test_every_field_that_people_write_is_described(spec):
    assert find_silent(SchemaWriter("v1").write_shape(spec), "spec", []) == [
        f"spec.rules[].validate.manifests.ignoreFields[].objects[].{name}"
        for name in ("group", "version", "kind", "namespace", "name")
        if spec == "Spec"
    ]
