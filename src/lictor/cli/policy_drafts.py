"""Writes a first policy with resources and a test, from templates; they pass `lint` and `test`."""

import re
from collections.abc import Iterable
from copy import deepcopy
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.cli.create import render_template
from lictor.cli.field_demands import ABSENT, FieldDemand
from lictor.core.errors import UsageError
from lictor.core.facts.resource_names import ResourceType
from lictor.core.raw import Json, JsonObject
from lictor.core.report.yaml_text import render_yaml
from lictor.lint.cluster_mutations import is_defaulted

_SYSTEM = "kube-system"
_OPERATIONS = re.compile("(>=|<=|>|<)(.+)")
_PATTERN = re.compile(r"^[!<>]|[*?|]")
_NAME = "{{ request.object.metadata.name }}"
_NAMESPACE = "{{ request.object.metadata.namespace }}"
_POD = {"containers": [{"name": "main", "image": "registry.example/app:1.0"}]}
_LABELS = {"app": "example"}
_WORKLOAD = {
    "selector": {"matchLabels": _LABELS},
    "template": {"metadata": {"labels": _LABELS}, "spec": _POD},
}
# The fields that an API server requires.
_SPECS: dict[str, JsonObject] = {
    "Pod": _POD,
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"), _WORKLOAD),
    "Service": {"selector": _LABELS, "ports": [{"port": 80}]},
}
# Usual contents of these kinds in every new namespace.
_USUAL: dict[str, JsonObject] = {
    "NetworkPolicy": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    "ResourceQuota": {"hard": {"requests.cpu": "4", "requests.memory": "16Gi"}},
    "LimitRange": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "512Mi"}}]},
}


class DraftRule(StrEnum):
    """The kinds of rules that can be drafted."""

    VALIDATE = "validate"
    CEL = "cel"
    MUTATE = "mutate"
    GENERATE = "generate"


class PolicyDraft(msgspec.Struct, frozen=True):
    """What the author wants."""

    name: str
    rule: DraftRule
    kind: ResourceType
    # What a field must be, or is set to; None: the usual contents of the generated kind.
    demand: FieldDemand | None = None
    message: str = ""
    enforce: bool = False
    # The kind that a generate rule creates.
    made: ResourceType | None = None

    @property
    def system_filter(self) -> str:
        """The field that excludes kube-system: a denial there can stop a cluster."""
        if self.rule is DraftRule.GENERATE:
            return "namespaces" if self.kind.namespaced else "names"
        return "namespaces" if self.enforce and self.kind.namespaced else ""


def has_usual_fields(kind: ResourceType) -> bool:
    """Whether a generate rule for this kind needs no field."""
    return kind.kind in _USUAL


def draft_files(draft: PolicyDraft) -> dict[str, str]:
    """Return the texts of all files, by name."""
    if draft.made is not None:
        return _draft_generation(draft, draft.made)
    if draft.demand is None:
        raise UsageError("a check is required: give --check FIELD=VALUE")
    if draft.rule is DraftRule.MUTATE:
        return _draft_mutation(draft, draft.demand)
    return _draft_validation(draft, draft.demand)


def _render(name: str, draft: PolicyDraft, **facts: Json) -> str:
    kind = draft.kind
    known = {
        **{field: getattr(draft, field) for field in draft.__struct_fields__},
        "resource": kind,
        "kind": f"{kind.api_version}/{kind.kind}" if kind.group else kind.kind,
        "system_filter": draft.system_filter,
        "created_only": False,
    }
    return render_template(name, **{**known, **facts})


def _render_objects(objects: Iterable[JsonObject]) -> str:
    return "---\n".join(map(render_yaml, objects))


# --- validation


def _draft_validation(draft: PolicyDraft, demand: FieldDemand) -> dict[str, str]:
    kind = draft.kind.kind
    wanted = "not be empty" if demand.pattern == "?*" else f"be {demand.pattern}"
    message = draft.message or f"{demand.field} of a {kind} must {wanted}"
    samples = _make_samples(draft, demand)
    rows = {
        result: [name for name in samples if name.startswith(word)]
        for result, word in (("pass", "good"), ("fail", "bad"), ("skip", "system"))
    }
    if draft.rule is DraftRule.CEL:
        policy = _render("cel", draft, message=message, expression=write_expression(demand))
    else:
        body = _nest(demand, demand.type_value(demand.pattern))
        policy = _render("classic", draft, message=message, body=body)
    rows = {result: names for result, names in rows.items() if names}
    return {
        "policy.yaml": policy,
        "resources.yaml": _render_objects(samples.values()),
        "kyverno-test.yaml": _render("kyverno-test", draft, rows=rows),
    }


def write_expression(demand: FieldDemand) -> str:
    """Return the CEL expression with the meaning of the pattern."""
    lists = [index for index, (_, is_list) in enumerate(demand.steps) if is_list]
    if not lists:
        return _write_test("object", demand.steps, demand)
    if len(lists) > 1 or lists[0] == len(demand.steps) - 1:
        raise UsageError(f"{demand.field}: a draft in CEL can go through one list of objects only")
    path = ".".join(name for name, _ in demand.steps[: lists[0] + 1])
    rest = demand.steps[lists[0] + 1 :]
    return f"object.{path}.all(item, {_write_test('item', rest, demand)})"


def _write_test(root: str, steps: tuple[tuple[str, bool], ...], demand: FieldDemand) -> str:
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


# --- resources


def _make_samples(draft: PolicyDraft, demand: FieldDemand) -> dict[str, JsonObject]:
    """Return resources by name: the policy passes those that begin with `good`."""
    in_list = any(is_list for _, is_list in demand.steps)
    values: list[tuple[str, tuple[Json, ...]]] = [("good", (value,)) for value in demand.good]
    # One invalid item among valid ones is still a failure.
    values += [("bad", (demand.good[0], bad) if in_list else (bad,)) for bad in demand.bad]
    samples: dict[str, JsonObject] = {}
    for word, given in values:
        number = sum(name.startswith(word) for name in samples) + 1
        name = word if number == 1 else f"{word}-{number}"
        samples[name] = _make_sample(draft, demand, name, given)
    if draft.system_filter:
        samples["system"] = _make_sample(draft, demand, "system", (demand.bad[0],), _SYSTEM)
    return samples


def _make_sample(
    draft: PolicyDraft,
    demand: FieldDemand,
    name: str,
    values: tuple[Json, ...],
    namespace: str = "default",
) -> JsonObject:
    body = _make_object(draft.kind, name, namespace)
    _place_values(body, demand.steps, values)
    return body


def _make_object(kind: ResourceType, name: str, namespace: str = "default") -> JsonObject:
    """Return a small object of the kind that an API server accepts."""
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
    body: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return body | ({"spec": deepcopy(_SPECS[kind.kind])} if kind.kind in _SPECS else {})


def _place_values(
    node: Json, steps: tuple[tuple[str, bool], ...], values: tuple[Json, ...]
) -> None:
    """Set the field; for several values, add items to the list on its path."""
    (name, is_list), rest = steps[0], steps[1:]
    if is_list and rest:
        items = node.get(name) or [{"name": "main"}]
        node[name] = [{**items[0], "name": f"{name[:4]}-{n}"} for n in range(len(values))]
        for item, value in zip(node[name], values, strict=True):
            _place_values(item, rest, (value,))
    elif rest:
        _place_values(node.setdefault(name, {}), rest, values)
    elif values[-1] is ABSENT:
        node.pop(name, None)
    else:
        node[name] = list(values) if is_list else values[-1]


def _nest(demand: FieldDemand, leaf: Json, *, name_items: bool = False) -> JsonObject:
    """Return the value under all names of the path; a patch of a list matches each item."""
    node = leaf
    for name, is_list in reversed(demand.steps):
        if is_list and name_items and isinstance(node, dict):
            node = {"(name)": "*", **node}
        node = {name: [node] if is_list else node}
    return dict(node)


# --- mutation and generation


def _draft_mutation(draft: PolicyDraft, demand: FieldDemand) -> dict[str, str]:
    """Draft a default: one resource gets it, another keeps its value."""
    kind = draft.kind.kind
    path = tuple(
        part for name, is_list in demand.steps for part in ((name, "*") if is_list else (name,))
    )
    if is_defaulted(kind, path):
        raise UsageError(
            f"{demand.field} of a {kind} is never missing: the API server sets it before "
            "admission, so that a default would never apply; check it with --rule validate"
        )
    value, other = demand.type_value(demand.pattern), demand.bad[-1]
    last, is_list = demand.steps[-1]
    added = replace(demand, steps=(*demand.steps[:-1], (f"+({last})", is_list)))
    own = _make_sample(draft, demand, "own", (other,))
    # Nearly no field of an existing Pod can be changed.
    created_only = kind == "Pod" and demand.steps[0][0] != "metadata"
    body = _nest(added, value, name_items=True)
    rows = {"pass": ["plain"], "skip": ["own"]}
    return {
        "policy.yaml": _render("classic", draft, body=body, created_only=created_only),
        "resources.yaml": _render_objects((_make_sample(draft, demand, "plain", (ABSENT,)), own)),
        "patched.yaml": _render_objects((_make_sample(draft, demand, "plain", (value,)), own)),
        "kyverno-test.yaml": _render("kyverno-test", draft, rows=rows),
    }


def _draft_generation(draft: PolicyDraft, made: ResourceType) -> dict[str, str]:
    """Draft a generate rule with a trigger, the generated object and the required rights."""
    if not made.namespaced:
        # Test files compare namespaced objects only.
        raise UsageError(f"a {made.kind} is not namespaced: a draft can generate others only")
    trigger, body = draft.kind, _make_body(draft.demand, made)
    is_namespace = trigger.kind == "Namespace" and not trigger.group
    # Several triggers in one namespace need different names.
    name = draft.name if is_namespace else f"{_NAME}-{draft.name}"
    place = _NAMESPACE if trigger.namespaced else "default"
    namespace = _NAME if is_namespace else place
    system = "system" if trigger.namespaced else _SYSTEM
    triggers = (_make_object(trigger, "example"), _make_object(trigger, system, _SYSTEM))
    values = {_NAME: "example", _NAMESPACE: "default"}
    metadata = {"name": _fill(name, values), "namespace": _fill(namespace, values)}
    head = {"apiVersion": made.api_version, "kind": made.kind}
    expected = {**head, **body, "metadata": {**metadata, **body.get("metadata", {})}}
    policy = _render("classic", draft, body=body, made_name=name, made_namespace=namespace)
    return {
        "policy.yaml": policy,
        "resources.yaml": _render_objects(triggers),
        "generated.yaml": _render_objects((expected,)),
        "cluster-role.yaml": _render("cluster-role", draft),
        "kyverno-test.yaml": _render("kyverno-test", draft, rows={"pass": ["example"]}),
    }


def _fill(text: str, values: dict[str, str]) -> str:
    for variable, value in values.items():
        text = text.replace(variable, value)
    return text


def _make_body(demand: FieldDemand | None, made: ResourceType) -> JsonObject:
    body: JsonObject = {"spec": deepcopy(_USUAL[made.kind])} if made.kind in _USUAL else {}
    if demand is not None:
        if _PATTERN.search(demand.pattern):
            raise UsageError(
                f'"{demand.pattern}" is a pattern: a rule that makes objects needs a value'
            )
        _place_values(body, demand.steps, (demand.type_value(demand.pattern),))
    return body
