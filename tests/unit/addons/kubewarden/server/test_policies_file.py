"""What `policies.yml` may say, and what keeps a server from taking it."""

import json
from pathlib import Path

import pytest

from lictor.addons.kubewarden.family.entries import GroupEntry, PolicyEntry, PolicyMode
from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.addons.kubewarden.server.policies_file import load_policies_file, refuse_missing_cluster
from lictor.core.errors import LoadError

_GROUP = "g: {policies: {m: {module: a}}, expression: m(), message: no}"


def test_policies_and_groups() -> None:
    text = """
labels: &labels
  module: registry://example.com/labels:v1
  policyMode: monitor
  settings: {yes: on, mode: 0o14, keep: 012, share: 1.5}
copy: *labels
plain: {module: a, settings: null, policies: {}}
group: {policies: {m: {module: a, timeoutEvalSeconds: 3}}, expression: m(), message: ''}
"""
    found = load_policies_file(text, "policies.yml")
    labels = PolicyEntry(
        module="registry://example.com/labels:v1",
        policy_mode=PolicyMode.MONITOR,
        # As YAML 1.2 has it: `yes` and `on` are text.
        settings={"yes": "on", "mode": 12, "keep": "012", "share": 1.5},
    )
    assert found["labels"] == found["copy"] == labels
    assert found["plain"] == PolicyEntry(module="a")
    group = found["group"]
    assert isinstance(group, GroupEntry)
    assert group.policies["m"].timeout_eval_seconds == 3


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_has_no_policies(text: str) -> None:
    assert load_policies_file(text, "policies.yml") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "expected a map of policies"),
        ("a: [", "policies.yml:2:1"),
        ("a:", "expected a map with a module"),
        ("a: {}", "`module`"),
        ("a/b: {module: x}", "'/'"),
        ("ok: {module: x}\na: {module: x, policyMode: Protect}", "policies.yml:2: policy a"),
        ("a: {module: x, settings: [1]}", "settings"),
        ("a: {module: x, timeoutEvalSeconds: 2s}", "timeoutEvalSeconds"),
        ("a: {module: x, timeoutEvalSeconds: 0}", "at least 1"),
        (_GROUP.replace("message: no", ""), "message"),
        (_GROUP.replace("expression: m(), ", ""), "expression"),
        (_GROUP.replace("module: a", "module: a, policyMode: monitor"), "no field 'policyMode'"),
        (_GROUP.replace("m: {", "a/b: {"), "'/'"),
        ("a: {module: x}\n---\nb: {module: x}", "one document"),
        ("a: {module: x, settings: {n: .inf}}", ".inf"),
        ("a: {module: x, settings: {n: !odd 1}}", "!odd"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(LoadError) as raised:
        load_policies_file(text, "policies.yml")
    assert told in str(raised.value)
    assert "policies.yml" in str(raised.value)


def test_of_a_name_that_stands_twice_the_last_counts() -> None:
    found = load_policies_file("a: {module: x}\na: {module: y}", "policies.yml")
    assert found == {"a": PolicyEntry(module="y")}


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_cluster_is_needed_by_policies_that_read_it(tmp_path: Path, *, is_needed: bool) -> None:
    file = tmp_path / "policies.yml"
    entry: dict[str, object] = {"module": "registry://example/a:v1"}
    if is_needed:
        entry["contextAwareResources"] = [{"apiVersion": "v1", "kind": "Namespace"}]
    file.write_text(json.dumps({"a": entry}))
    options = PolicyServerOptions(policies=file)
    if is_needed:
        with pytest.raises(LoadError, match="the cluster is not available"):
            refuse_missing_cluster(options, "")
    else:
        refuse_missing_cluster(options, "")
