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
        ("", "missing required field `rules`"),
        ("mutating: false", "missing required field `rules`"),
        (f"rules: [{RULE}]", "missing required field `mutating`"),
        ("- a", "must be a mapping"),
        ("rules: {}\nmutating: false", "Expected `array`, got `object` - at `$.rules`"),
        ("rules: []\nmutating: nearly", "Expected `bool`, got `str` - at `$.mutating`"),
        ("rules: [a]\nmutating: false", "Expected `object`, got `str` - at `$.rules[0]`"),
        (
            "rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE]}]\nmutating: false",
            "missing required field `resources` - at `$.rules[0]`",
        ),
        (
            f"rules: [{RULE.replace('CREATE', 'FLY')}]\nmutating: false",
            "Invalid enum value 'FLY' - at `$.rules[0].operations[0]`",
        ),
        (f"rules: [{RULE.replace('pods', STAR + ', pods')}]\nmutating: false", "'*' covers 'pods'"),
        (f"rules: [{RULE.replace('pods', 'pods/*, pods/log')}]\nmutating: false", "covers"),
        (
            f"rules: [{RULE.replace('v1', STAR + ', v1')}]\nmutating: false",
            "beside '*' nothing else",
        ),
        (
            "rules: []\nmutating: false\nexecutionMode: kubewarden",
            "Invalid enum value 'kubewarden' - at `$.executionMode`",
        ),
        (
            "rules: []\nmutating: false\npolicyType: wild",
            "Invalid enum value 'wild' - at `$.policyType`",
        ),
        (
            "rules: []\nmutating: false\nprotocolVersion: v2",
            "Invalid enum value 'v2' - at `$.protocolVersion`",
        ),
        ("rules: []\nmutating: false\nminimumKubewardenVersion: 1.x", "write it like 1.30.0"),
        (
            "rules: []\nmutating: false\ncontextAwareResources: [v1/Pod]",
            "at `$.contextAwareResources[0]`",
        ),
        (
            "rules: []\nmutating: false\nhostCapabilities: [1]",
            "Expected `str`, got `int` - at `$.hostCapabilities[0]`",
        ),
        (
            "rules: []\nmutating: false\nannotations: {a: [b]}",
            "Expected `str`, got `array` - at `$.annotations[...]`",
        ),
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
