"""`metadata.yml`: what it says, and how mistakes in it are told."""

from pathlib import Path

import pytest

from lictor.addons.kubewarden.cli.metadata_files import complete_metadata, read_metadata_file
from lictor.core.errors import LoadError
from lictor.core.lang.wasm_records import ExecutionMode

RULE = "{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}"
STAR = '"*"'


def read(folder: Path, text: str):
    path = folder / "metadata.yml"
    path.write_text(text)
    return read_metadata_file(str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "rules must be there"),
        ("mutating: false", "rules must be there"),
        (f"rules: [{RULE}]", "mutating must be there"),
        ("- a", "must be a mapping"),
        ("rules: {}\nmutating: false", "rules must be a list"),
        ("rules: []\nmutating: nearly", "mutating must be true or false"),
        ("rules: [a]\nmutating: false", "rules[0] must be a mapping"),
        (
            "rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE]}]\nmutating: false",
            "rules[0].resources must be there",
        ),
        (f"rules: [{RULE.replace('CREATE', 'FLY')}]\nmutating: false", "'FLY' is none of"),
        (f"rules: [{RULE.replace('pods', STAR + ', pods')}]\nmutating: false", "'*' covers 'pods'"),
        (f"rules: [{RULE.replace('pods', 'pods/*, pods/log')}]\nmutating: false", "covers"),
        (
            f"rules: [{RULE.replace('v1', STAR + ', v1')}]\nmutating: false",
            "beside '*' nothing else",
        ),
        ("rules: []\nmutating: false\nexecutionMode: kubewarden", "executionMode is 'kubewarden'"),
        ("rules: []\nmutating: false\npolicyType: wild", "policyType is 'wild'"),
        ("rules: []\nmutating: false\nprotocolVersion: v2", "protocolVersion is 'v2'"),
        ("rules: []\nmutating: false\nminimumKubewardenVersion: 1.x", "write it like 1.30.0"),
        ("rules: []\nmutating: false\ncontextAwareResources: [v1/Pod]", "an apiVersion and a kind"),
        ("rules: []\nmutating: false\nhostCapabilities: [1]", "a list of texts"),
        ("rules: []\nmutating: false\nannotations: {a: [b]}", "annotations.a must be text"),
        ("rules: []\nmutating: false\n---\nrules: []", "one document is expected"),
        ("rules: [\n", "metadata.yml:"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(LoadError, match=r"metadata\.yml") as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    found = read(tmp_path, f"rules: [{RULE}]\nmutating: true\n").metadata
    assert found.execution_mode is ExecutionMode.WAPC
    assert (found.mutating, found.background_audit, found.policy_type) == (True, True, "kubernetes")


def test_fields_that_mean_nothing_are_named(tmp_path: Path) -> None:
    assert read(tmp_path, "rules: []\nmutating: false\nmutatin: true\n").unknown == ("mutatin",)


@pytest.mark.parametrize(("written", "read_as"), [("0.10", "0.10"), ("1", "1"), ("yes", "yes")])
def test_annotations_are_the_text_that_is_written(
    tmp_path: Path, written: str, read_as: str
) -> None:
    """A version 0.10 is not 0.1, whatever YAML takes it for."""
    found = read(tmp_path, f"rules: []\nmutating: false\nannotations: {{a: {written}}}\n")
    assert found.metadata.annotations == {"a": read_as}


def test_completed_metadata_names_protocol_tool_and_usage(tmp_path: Path) -> None:
    metadata = read(tmp_path, "rules: []\nmutating: false\nannotations: {a: b}\n").metadata
    made = complete_metadata(metadata, protocol_version="v1", usage="how")
    assert made.protocol_version == "v1"
    assert (made.annotations or {}).keys() == {
        "a",
        "io.kubewarden.kwctl",
        "io.kubewarden.policy.usage",
    }
