"""Writes a first policy with resources and a test: files that pass `lint` and `test` at once."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import msgspec

from lictor.cli.field_demands import ABSENT, FieldDemand
from lictor.core.errors import UsageError
from lictor.core.facts.resource_names import ResourceType
from lictor.core.raw import Json, JsonObject
from lictor.core.report.yaml_text import render_scalar, render_yaml
from lictor.lint.cluster_mutations import is_defaulted

_SYSTEM = "kube-system"
_OPERATIONS = re.compile("(>=|<=|>|<)(.+)")


class DraftRule(StrEnum):
    """The kinds of rules that can be drafted."""

    VALIDATE = "validate"
    CEL = "cel"
    MUTATE = "mutate"


class PolicyDraft(msgspec.Struct, frozen=True):
    """What the author asked for."""

    name: str
    rule: DraftRule
    kind: ResourceType
    demand: FieldDemand
    message: str = ""
    enforce: bool = False

    @property
    def is_metadata(self) -> bool:
        return self.demand.steps[0][0] == "metadata"

    @property
    def told(self) -> str:
        asked = f"{self.demand.field} of a {self.kind.kind} must be {self.demand.pattern}"
        return self.message or (
            f"{self.demand.field} of a {self.kind.kind} must not be empty"
            if self.demand.pattern == "?*"
            else asked
        )

    @property
    def spares_system(self) -> bool:
        """Whether Kubernetes' own objects are left alone: a refusal there can stop a cluster."""
        return self.enforce and bool(self.kind.namespaced)


def draft_files(draft: PolicyDraft) -> dict[str, str]:
    """The texts of all files, by name."""
    if draft.rule is DraftRule.MUTATE:
        return _draft_mutation(draft)
    policy = _write_cel(draft) if draft.rule is DraftRule.CEL else _write_classic(draft)
    samples = dict(_list_samples(draft))
    return {
        "policy.yaml": policy,
        "resources.yaml": write_documents(samples.values()),
        "kyverno-test.yaml": _write_test(draft, samples),
    }


# --- policies


def write_classic_head(name: str) -> str:
    """The beginning of a classic policy."""
    return _write_head(name, "kyverno.io/v1", "ClusterPolicy")


def _write_head(name: str, api_version: str, kind: str) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n"


def name_kind(kind: ResourceType) -> str:
    """A kind as `match` names it."""
    return f"{kind.api_version}/{kind.kind}" if kind.group else kind.kind


def _write_rule(draft: PolicyDraft) -> str:
    """The beginning of a classic rule: its name, and what it is about."""
    text = (
        f"  rules:\n    - name: {draft.name}\n      match:\n        any:\n"
        f"          - resources:\n              kinds: [{name_kind(draft.kind)}]\n"
    )
    if draft.rule is DraftRule.MUTATE and draft.kind.kind == "Pod" and not draft.is_metadata:
        # Nearly nothing of a Pod that is there already can be changed.
        text += "              operations: [CREATE]\n"
    if draft.spares_system:
        text += (
            "      exclude:\n        any:\n          - resources:\n"
            f"              namespaces: [{_SYSTEM}]\n"
        )
    return text


def _write_classic(draft: PolicyDraft) -> str:
    leaf = draft.demand.type_value(draft.demand.pattern)
    pattern = textwrap.indent(render_yaml(_nest(draft.demand, leaf)), " " * 10)
    return (
        f"{write_classic_head(draft.name)}{_write_rule(draft)}"
        f"      validate:\n        failureAction: {'Enforce' if draft.enforce else 'Audit'}\n"
        f"        message: {render_scalar(draft.told)}\n        pattern:\n{pattern}"
    )


def _write_cel(draft: PolicyDraft) -> str:
    kind = draft.kind
    text = _write_head(draft.name, "policies.kyverno.io/v1", "ValidatingPolicy") + (
        f"  validationActions: [{'Deny' if draft.enforce else 'Audit'}]\n"
        "  matchConstraints:\n    resourceRules:\n"
        f'      - apiGroups: ["{kind.group}"]\n        apiVersions: [{kind.version}]\n'
        f"        operations: [CREATE, UPDATE]\n        resources: [{kind.resource}]\n"
    )
    if draft.spares_system:
        text += (
            "  matchConditions:\n    - name: not-of-the-system\n"
            f"      expression: request.namespace != '{_SYSTEM}'\n"
        )
    return text + (
        f"  validations:\n    - expression: >-\n        {write_expression(draft.demand)}\n"
        f"      message: {render_scalar(draft.told)}\n"
    )


def write_expression(demand: FieldDemand) -> str:
    """The CEL expression that asks the same as the pattern."""
    lists = [index for index, (_, is_list) in enumerate(demand.steps) if is_list]
    if not lists:
        return _write_question("object", demand.steps, demand)
    if len(lists) > 1 or lists[0] == len(demand.steps) - 1:
        raise UsageError(f"{demand.field}: a draft in CEL can go through one list of objects only")
    path = ".".join(name for name, _ in demand.steps[: lists[0] + 1])
    rest = demand.steps[lists[0] + 1 :]
    return f"object.{path}.all(item, {_write_question('item', rest, demand)})"


def _write_question(root: str, steps: tuple[tuple[str, bool], ...], demand: FieldDemand) -> str:
    path = root + "".join(_write_step(name) for name, _ in steps)
    value = f"{path}.value()"
    pattern = demand.pattern
    if pattern.startswith("!"):
        return f"!{path}.hasValue() || !({_compare(value, pattern[1:], demand)})"
    return f"{path}.hasValue() && {_compare(value, pattern, demand)}"


def _write_step(name: str) -> str:
    return f".?{name}" if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else f"[?{_quote(name)}]"


def _compare(value: str, pattern: str, demand: FieldDemand) -> str:
    if pattern == "?*":
        return f"{value} != ''"
    compared = _OPERATIONS.fullmatch(pattern)
    if compared and demand.is_quantity:
        limit = f"quantity({_quote(compared[2])})"
        return f"quantity({value}).compareTo({limit}) {compared[1]} 0"
    if compared:
        return f"{value} {compared[1]} {compared[2]}"
    if "|" in pattern:
        items = [_write_literal(part.strip(), demand) for part in pattern.split("|")]
        return f"{value} in [{', '.join(items)}]"
    if "*" in pattern or "?" in pattern:
        return f"{value}.matches({_quote(_write_regex(pattern))})"
    return f"{value} == {_write_literal(pattern, demand)}"


def _write_literal(text: str, demand: FieldDemand) -> str:
    value = demand.type_value(text)
    return _quote(value) if isinstance(value, str) else str(value).lower()


def _write_regex(pattern: str) -> str:
    parts = (re.escape(each) if each not in "*?" else each for each in re.split("([*?])", pattern))
    wild = "".join(".*" if part == "*" else "." if part == "?" else part for part in parts)
    # Backslashes would have to be written twice in CEL.
    return "^" + re.sub(r"\\(.)", r"[\1]", wild) + "$"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _nest(demand: FieldDemand, leaf: Json) -> JsonObject:
    """The value under all names of the path."""
    node = leaf
    for name, is_list in reversed(demand.steps):
        node = {name: [node] if is_list else node}
    return dict(node)


# --- resources


def _list_samples(draft: PolicyDraft) -> Iterator[tuple[str, JsonObject]]:
    """Resources by name: those that begin with `good` are as the policy wants them."""
    demand = draft.demand
    for number, value in enumerate(demand.good, 1):
        yield _number("good", number), _make_sample(draft, _number("good", number), (value,))
    in_list = any(is_list for _, is_list in demand.steps)
    for number, value in enumerate(demand.bad, 1):
        # One wrong item among right ones is still wrong.
        values = (demand.good[0], value) if in_list else (value,)
        yield _number("bad", number), _make_sample(draft, _number("bad", number), values)
    if draft.spares_system and draft.rule is not DraftRule.MUTATE:
        yield "system", _make_sample(draft, "system", (demand.bad[0],), _SYSTEM)


def _number(word: str, number: int) -> str:
    return word if number == 1 else f"{word}-{number}"


def _make_sample(
    draft: PolicyDraft, name: str, values: tuple[Json, ...], namespace: str = "default"
) -> JsonObject:
    """A small object of the kind with these values in the field; several make several items."""
    body = make_object(draft.kind, name, namespace)
    place_values(body, draft.demand.steps, values)
    return body


def make_object(kind: ResourceType, name: str, namespace: str = "default") -> JsonObject:
    """A small object of the kind, as an API server takes it."""
    metadata: JsonObject = {"name": name}
    if kind.namespaced:
        metadata["namespace"] = namespace
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return body | _SPECS[kind.kind]() if kind.kind in _SPECS else body


def place_values(node: Json, steps: tuple[tuple[str, bool], ...], values: tuple[Json, ...]) -> None:
    """Put values into the field; several make several items of the list on the way."""
    (name, is_list), rest = steps[0], steps[1:]
    if is_list and rest:
        items = node.get(name) or [{"name": "main"}]
        node[name] = [{**items[0], "name": f"{name[:4]}-{n}"} for n in range(len(values))]
        for item, value in zip(node[name], values, strict=True):
            place_values(item, rest, (value,))
    elif rest:
        place_values(node.setdefault(name, {}), rest, values)
    elif values[-1] is ABSENT:
        node.pop(name, None)
    else:
        node[name] = list(values) if is_list else values[-1]


def _make_pod_spec() -> JsonObject:
    return {"containers": [{"name": "main", "image": "registry.example/app:1.0"}]}


def _make_workload() -> JsonObject:
    labels = {"app": "example"}
    template = {"metadata": {"labels": labels}, "spec": _make_pod_spec()}
    return {"spec": {"selector": {"matchLabels": labels}, "template": template}}


_SPECS: dict[str, Callable[[], JsonObject]] = {
    "Pod": lambda: {"spec": _make_pod_spec()},
    "Deployment": _make_workload,
    "StatefulSet": _make_workload,
    "DaemonSet": _make_workload,
    "ReplicaSet": _make_workload,
    "Service": lambda: {"spec": {"selector": {"app": "example"}, "ports": [{"port": 80}]}},
}


def write_documents(samples: Iterable[JsonObject]) -> str:
    """Objects as the text of a file."""
    return "---\n".join(render_yaml(sample) for sample in samples)


# --- tests


def _write_test(draft: PolicyDraft, samples: dict[str, JsonObject]) -> str:
    rows = {
        "pass": [name for name in samples if name.startswith("good")],
        "fail": [name for name in samples if name.startswith("bad")],
        "skip": [name for name in samples if name == "system"],
    }
    head = write_test_head(draft.name)
    results = "".join(_write_row(draft, names, result) for result, names in rows.items() if names)
    return f"{head}results:\n{results}" + (
        "# What follows from a failure: a refusal, or an entry in a report.\nchecks:\n"
        f"  - match:\n      policy: {{metadata: {{name: {draft.name}}}}}\n"
        "      resource: {metadata: {name: bad}}\n"
        f"    assert: {{status: fail, action: {'Enforce' if draft.enforce else 'Audit'}}}\n"
    )


def write_test_head(name: str) -> str:
    """The beginning of a test file."""
    return (
        f"apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata:\n  name: {name}\n"
        "policies: [policy.yaml]\nresources: [resources.yaml]\n"
    )


def _write_row(draft: PolicyDraft, names: list[str], result: str) -> str:
    named = "isValidatingPolicy: true" if draft.rule is DraftRule.CEL else f"rule: {draft.name}"
    return (
        f"  - policy: {draft.name}\n    {named}\n    kind: {draft.kind.kind}\n"
        f"    resources: [{', '.join(names)}]\n    result: {result}\n"
    )


def _draft_mutation(draft: PolicyDraft) -> dict[str, str]:
    """A rule that writes a default: one resource gets it, another keeps what it has."""
    demand = draft.demand
    path = tuple(
        part for name, is_list in demand.steps for part in ((name, "*") if is_list else (name,))
    )
    if is_defaulted(draft.kind.kind, path):
        raise UsageError(
            f"{demand.field} of a {draft.kind.kind} is never missing: the API server "
            "writes it before it asks anyone, so that a default would never apply; check it with "
            "--rule validate"
        )
    value = demand.type_value(demand.pattern)
    steps = (*demand.steps[:-1], (f"+({demand.steps[-1][0]})", demand.steps[-1][1]))
    patch = _nest(msgspec.structs.replace(demand, steps=steps), value)
    _name_items(patch)
    text = textwrap.indent(render_yaml(patch), " " * 10)
    other = demand.bad[-1]
    given = [_make_sample(draft, "plain", (ABSENT,)), _make_sample(draft, "own", (other,))]
    expected = [_make_sample(draft, "plain", (value,)), _make_sample(draft, "own", (other,))]
    patched = "    patchedResources: patched.yaml\n"
    rows = _write_row(draft, ["plain"], "pass") + patched
    rows += _write_row(draft, ["own"], "skip") + patched
    return {
        "policy.yaml": (
            f"{write_classic_head(draft.name)}{_write_rule(draft)}"
            f"      mutate:\n        patchStrategicMerge:\n{text}"
        ),
        "resources.yaml": write_documents(given),
        "patched.yaml": write_documents(expected),
        "kyverno-test.yaml": f"{write_test_head(draft.name)}results:\n{rows}",
    }


def _name_items(node: Json) -> None:
    """Let patches of lists concern each item."""
    if isinstance(node, dict):
        for value in node.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                value[0] = {"(name)": "*", **value[0]}
                _name_items(value[0])
            else:
                _name_items(value)
