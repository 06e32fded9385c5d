"""Write charts/lictor from the manifests of `lictor install`: templates, values, schema, kinds.

    python scripts/make_chart.py [--check]

The manifests of an installation have placeholders (`install/placeholders.py`); here they
are printed as templates of Helm. `_helpers.tpl`, `kinds.yaml`, `NOTES.txt` and `.helmignore` are
written by hand.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from lictor.core.raw import Json, JsonObject
from lictor.core.release import VERSION
from lictor.core.report.yaml_text import render_yaml
from lictor.install.arguments import FLAG_VALUES, REPORTED, list_usual_flags
from lictor.install.build import list_templates
from lictor.install.crds import build_crd, list_crd_kinds
from lictor.install.installation import TEMPLATE
from lictor.install.monitoring import DASHBOARD_FILE, render_dashboard_file
from lictor.install.placeholders import (
    MARK,
    ArgumentList,
    ComputedMap,
    ConditionalPart,
    ExtendedList,
    ExtendedMap,
    LabelSet,
    OptionalValueAt,
    ReplaceableList,
    ValueAt,
)
from lictor.install.rights import list_webhook_names
from lictor.install.settings_map import list_own_filters
from lictor.install.values import ValueRow, default_values, is_required, list_values, name_kind

CHART = Path(__file__).parents[1] / "charts" / "lictor"
BY_HAND = frozenset(("_helpers.tpl", "kinds.yaml", "NOTES.txt", ".helmignore"))
HEAD = "Made by scripts/make_chart.py; a test compares it with `lictor install`."
ROWS = {row.path: row for row in list_values()}
SCALARS = frozenset(("text", "int", "count", "bool", "size", "time"))
PLAIN = re.compile(r"[A-Za-z/][\w./-]*")
NOT_PLAIN = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
FILES = {
    "Deployment": "deployment.yaml",
    "Service": "services.yaml",
    "NetworkPolicy": "network-policy.yaml",
    "PodDisruptionBudget": "disruption-budget.yaml",
    "HorizontalPodAutoscaler": "autoscaler.yaml",
    "ConfigMap": "config-maps.yaml",
    "ServiceMonitor": "service-monitor.yaml",
    "PrometheusRule": "prometheus-rule.yaml",
}
# Longer texts, such as dashboards, are separate files.
LONG = 2000
KEEP = {"helm.sh/resource-policy": "keep"}
Lines: TypeAlias = Iterator[str]


# --- placeholders as templates


def write_entry(key: str, part: Json, depth: int) -> Lines:
    """One field of a map."""
    pad = "  " * depth
    match part:
        case ConditionalPart(conditions, inner):
            yield f"{pad}{{{{- if {write_conditions(conditions)} }}}}"
            yield from write_entry(key, inner, depth)
            yield f"{pad}{{{{- end }}}}"
        case ValueAt(path):
            yield f"{pad}{key}: {write_value(path, f'.Values.{path}', depth)}"
        case OptionalValueAt(paths):
            values = [f".Values.{path}" for path in paths]
            found = values[0] if len(values) == 1 else f"(coalesce {' '.join(values)})"
            yield f"{pad}{{{{- with {found} }}}}"
            yield f"{pad}{key}: {write_value(paths[0], '.', depth)}"
            yield f"{pad}{{{{- end }}}}"
        case ReplaceableList(path, usual):
            yield f"{pad}{{{{- with .Values.{path} }}}}"
            yield f"{pad}{key}: {write_value(path, '.', depth)}"
            yield f"{pad}{{{{- else }}}}"
            yield from write_entry(key, usual, depth)
            yield f"{pad}{{{{- end }}}}"
        case _:
            yield from write_own_entry(key, part, depth)


def write_own_entry(key: str, part: Json, depth: int) -> Lines:
    """A field whose value is ours, with placeholders in it."""
    pad = "  " * depth
    match part:
        case ExtendedList(items, paths):
            yield f"{pad}{key}:"
            yield from write_items(items, depth + 1)
            for path in paths:
                yield from write_more(f".Values.{path}", depth + 1)
        case ExtendedMap(items, path):
            yield f"{pad}{key}:"
            yield from write_fields(items, depth + 1)
            ours = " ".join(f'"{name}"' for name in items)
            yield from write_more(f"(omit (.Values.{path} | default dict) {ours})", depth + 1)
        case LabelSet() | ArgumentList() | ComputedMap():
            yield f"{pad}{key}:"
            call = write_call(part)
            yield f"{pad}  {{{{- include {call} | nindent {2 * depth + 2} }}}}"
            if isinstance(part, LabelSet):
                yield from write_fields(part.more, depth + 1)
        case dict():
            yield f"{pad}{key}:"
            yield from write_fields(part, depth + 1)
        case list():
            yield f"{pad}{key}:"
            yield from write_items(part, depth + 1)
        case str() if len(part) > LONG:
            yield f'{pad}{key}: {{{{ .Files.Get "files/{key}" | toJson }}}}'
        case _:
            yield f"{pad}{key}: {write_scalar(part)}"


def write_more(value: str, depth: int) -> Lines:
    """What the values add to a list or a map of the chart."""
    pad = "  " * depth
    yield f"{pad}{{{{- with {value} }}}}"
    yield f"{pad}{{{{- toYaml . | nindent {2 * depth} }}}}"
    yield f"{pad}{{{{- end }}}}"


def write_call(part: LabelSet | ArgumentList | ComputedMap) -> str:
    """The helper that computes a part."""
    match part:
        case LabelSet(component, _, paths):
            theirs = " ".join(f".Values.{path}" for path in ("customLabels", *paths))
            more = f'"component" "{component}" "theirs" (list {theirs})'
            return f'"lictor.labels" (dict "root" . {more})'
        case ArgumentList(command, controller, container, own):
            words = " ".join(f'"{word}"' for word in command)
            pairs = " ".join(f'"{name}" {write_expression(text)}' for name, text in own.items())
            return (
                f'"lictor.arguments" (dict "root" . "controller" .Values.{controller}'
                f' "container" .Values.{container} "command" (list {words}) "own" (dict {pairs}))'
            ).replace("(dict )", "dict")
        case ComputedMap(name):
            return f'"lictor.{name}" .'


def write_fields(fields: JsonObject, depth: int) -> Lines:
    """All fields of a map."""
    for key, part in fields.items():
        yield from write_entry(write_scalar(key), part, depth)


def write_items(items: Iterable[Json], depth: int) -> Lines:
    """All elements of a list."""
    pad = "  " * depth
    for item in items:
        if isinstance(item, ConditionalPart):
            yield f"{pad}{{{{- if {write_conditions(item.conditions)} }}}}"
            yield from write_items([item.part], depth)
            yield f"{pad}{{{{- end }}}}"
        elif isinstance(item, dict):
            first, *others = write_fields(item, depth + 1)
            yield f"{pad}- {first.strip()}"
            yield from others
        else:
            yield f"{pad}- {write_scalar(item)}"


def write_value(path: str, expression: str, depth: int) -> str:
    """A value, as its type is written."""
    kind = ROWS[path].type
    if kind in ("int", "count"):
        return f"{{{{ int64 {expression} }}}}"
    if kind == "bool":
        return f"{{{{ {expression} }}}}"
    if kind in SCALARS:
        return f"{{{{ toYaml {expression} }}}}"
    return f"{{{{- toYaml {expression} | nindent {2 * depth + 2} }}}}"


def write_conditions(conditions: tuple[str, ...]) -> str:
    """Conditions, as an expression of Go."""
    terms = [write_condition(each) for each in conditions]
    if len(terms) > 1:
        return f"and {' '.join(terms)}"
    return terms[0].removeprefix("(").removesuffix(")") if terms[0][0] == "(" else terms[0]


def write_condition(condition: str) -> str:
    """One condition."""
    if "|" in condition:
        return f"(or {' '.join(map(write_condition, condition.split('|')))})"
    if condition.startswith("!"):
        return f"(not .Values.{condition[1:]})"
    path, more, number = condition.partition(">")
    return f"(gt (int .Values.{path}) {number})" if more else f".Values.{path}"


def write_scalar(value: Json) -> str:
    """A text, number or boolean; marks in texts become calls of helpers."""
    if not isinstance(value, str):
        return json.dumps(value)
    if PLAIN.fullmatch(value) and value.lower() not in NOT_PLAIN:
        return value
    # Braces of other languages, such as those of alerts, are no templates of Helm.
    text = json.dumps(value, ensure_ascii=False).replace("{{", '{{ "{{" }}')
    return MARK.sub(lambda mark: f"{{{{ {name_mark(mark)} }}}}", text)


def write_expression(text: str) -> str:
    """A text as an argument of a helper."""
    mark = MARK.fullmatch(text)
    return f"({name_mark(mark)})" if mark else f'"{text}"'


def name_mark(mark: re.Match[str]) -> str:
    """What a mark is in a template."""
    match mark[1]:
        case "value":
            return f".Values.{mark[2]}"
        case "account":
            return f'include "lictor.account" (list . "{mark[2]}")'
        case name:
            return f'include "lictor.{name}" .'


# --- files


def print_document(part: Json) -> str:
    """One object, and when it is there."""
    if isinstance(part, ConditionalPart):
        lines = [
            f"{{{{- if {write_conditions(part.conditions)} }}}}",
            "---",
            *write_fields(part.part, 0),
            "{{- end }}",
        ]
    else:
        lines = ["---", *write_fields(part, 0)]
    return "\n".join(lines) + "\n"


def list_template_files() -> dict[str, str]:
    """All objects, sorted into files by what they belong to."""
    found: dict[str, str] = {}
    for part in list_templates():
        body = part.part if isinstance(part, ConditionalPart) else part
        component = body["metadata"]["labels"].component
        name = f"templates/{component}/{FILES.get(body['kind'], 'rights.yaml')}"
        found.setdefault(name, f"{{{{- /* {HEAD} */}}}}\n")
        found[name] += print_document(_mark_kept(part, body))
    return found


def _mark_kept(part: Json, body: JsonObject) -> Json:
    """The settings stay when the release goes, where that is wanted."""
    if body["kind"] != "ConfigMap" or body["metadata"]["name"] != TEMPLATE.names.config_map:
        return part
    kept = {name: ConditionalPart(("config.preserve",), text) for name, text in KEEP.items()}
    annotations = ConditionalPart(
        ("config.preserve|config.annotations",), ExtendedMap(kept, "config.annotations")
    )
    metadata = {**body["metadata"], "annotations": annotations}
    return ConditionalPart(part.conditions, {**body, "metadata": metadata})


# What Helm does before it uninstalls: it replaces these objects by empty ones of the same name, and
# deletes those. So the right to make webhooks goes first, then the webhooks, then everything else;
# it works when nothing of us runs. The other order would race with controllers that run.
HOOK = {
    "helm.sh/hook": "pre-delete",
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
}


def print_hooks() -> str:
    """What makes sure that no webhook stays when the release goes."""
    hooks = [_build_binding_hook("0"), *_list_webhook_hooks("1")]
    # Where Helm only prints, nothing is found: `helm template | kubectl apply` would empty the
    # binding that is needed.
    live = 'lookup "v1" "Namespace" "" "kube-system"'
    start = f"{{{{- if and .Values.webhooksCleanup.enabled ({live}) }}}}\n"
    body = "".join(map(_print_hook, hooks))
    return f"{{{{- /* {HEAD} */}}}}\n{start}{body}{{{{- end }}}}\n"


def _build_binding_hook(weight: str) -> JsonObject:
    group, name = "rbac.authorization.k8s.io", TEMPLATE.names.owner_role
    binding = _build_hook(f"{group}/v1", "ClusterRoleBinding", name, weight)
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    return {**binding, "roleRef": role, "subjects": []}


def _list_webhook_hooks(weight: str) -> Iterator[JsonObject]:
    version = "admissionregistration.k8s.io/v1"
    for name in list_webhook_names(TEMPLATE.names):
        kind = "Mutating" if "-mutating-" in name else "Validating"
        hook = _build_hook(version, f"{kind}WebhookConfiguration", name, weight)
        yield {**hook, "webhooks": []}


def _build_hook(version: str, kind: str, name: str, weight: str) -> JsonObject:
    annotations = {**HOOK, "helm.sh/hook-weight": weight}
    metadata = {"name": name, "labels": LabelSet("hooks"), "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _print_hook(hook: JsonObject) -> str:
    text = print_document(hook)
    return re.sub(r"^(subjects|webhooks):$", r"\1: []", text, flags=re.MULTILINE)


def print_flags() -> str:
    """Which value each flag has, and what it is where it is not given; for the helper of flags."""
    usual = list_usual_flags()
    lines = [f"{{{{- /* {HEAD} */}}}}", '{{- define "lictor.flag-values" -}}']
    for name, path in FLAG_VALUES.items():
        start = ".controller" if path.startswith("C.") else ".root.Values"
        value = f"{start}.{path.removeprefix('C.')}"
        lines.append(f'{{{{- $_ := set .values "{name}" {value} }}}}')
        lines.append(f'{{{{- $_ := set .usual "{name}" {json.dumps(usual[name])} }}}}')
    reported = " ".join(f'"{name}"' for name in REPORTED)
    lines += [
        f'{{{{- $_ := set . "reported" (list {reported}) }}}}',
        f'{{{{- $_ := set .usual "resyncPeriod" {json.dumps(usual["resyncPeriod"])} }}}}',
        "{{- end -}}",
        '{{- define "lictor.own-filters" -}}',
        *(MARK.sub(lambda mark: f"{{{{ {name_mark(mark)} }}}}", each) for each in _own_filters()),
        "{{- end -}}",
    ]
    return "\n".join(lines) + "\n"


def _own_filters() -> list[str]:
    return list_own_filters(TEMPLATE.prefix)


# --- values, schema, kinds


def print_values() -> str:
    """All values with what is usual, and what they are."""
    lines = [f"# {HEAD}"]
    lines += _print_branch(default_values(), "", 0)
    return "\n".join(lines) + "\n"


def _print_branch(values: JsonObject, path: str, depth: int) -> Lines:
    pad = "  " * depth
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        if not depth:
            yield ""
        row = ROWS.get(where)
        if row is None:
            yield f"{pad}{name}:"
            yield from _print_branch(value, where, depth + 1)
            continue
        yield f"{pad}# {row.words}"
        text = render_yaml({name: value}).rstrip("\n")
        yield from (f"{pad}{line}" for line in text.splitlines())


def build_schema() -> JsonObject:
    """What values may be; Helm checks them before anything else."""
    schema = _build_branch()
    for row in list_values():
        place = schema
        *above, last = row.path.split(".")
        for name in above:
            place = place["properties"].setdefault(name, _build_branch())
        place["properties"][last] = _describe_value(row)
        if is_required(row):
            place.setdefault("required", []).append(last)
    # A chart that has this one within it shares these with others.
    schema["properties"]["global"]["additionalProperties"] = True
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "lictor", **schema}


def _build_branch() -> JsonObject:
    return {"type": "object", "additionalProperties": False, "properties": {}}


TYPES: dict[str, JsonObject] = {
    "text": {"type": "string"},
    "time": {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"},
    "int": {"type": "integer", "minimum": 0},
    "count": {"type": "integer", "minimum": 1},
    "bool": {"type": "boolean"},
    "size": {"type": ["integer", "string"]},
    "texts": {"type": "array", "items": {"type": "string", "not": {"pattern": r"\{\{"}}},
    "list": {"type": "array"},
    "map": {"type": "object"},
}


def _describe_value(row: ValueRow) -> JsonObject:
    found = {"description": row.words, **TYPES[row.type]}
    if row.choices:
        found["enum"] = list(row.choices)
    if not row.optional:
        return found
    kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
    return {**found, "type": [*kinds, "null"]}


def print_chart() -> str:
    """Chart.yaml."""
    about = {
        "apiVersion": "v2",
        "name": "lictor",
        "description": "A policy engine for Kubernetes that takes Kyverno's policies unchanged.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.28.0-0",
        "keywords": ["policy", "security", "admission", "kyverno"],
    }
    return render_yaml(about)


def list_files() -> dict[str, str]:
    """All files that are made here, by their path in the chart."""
    made = {
        "Chart.yaml": print_chart(),
        "values.yaml": print_values(),
        "values.schema.json": json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n",
        "templates/_flags.tpl": print_flags(),
        "templates/hooks/remove-webhooks.yaml": print_hooks(),
        f"files/{DASHBOARD_FILE}": render_dashboard_file(),
        **list_template_files(),
    }
    for kind in list_crd_kinds():
        short = name_kind(kind.group, kind.plural).removeprefix("crds.groups.")
        made[f"files/crds/{short}.json"] = json.dumps(build_crd(kind), separators=(",", ":")) + "\n"
    return made


def find_differences(made: dict[str, str]) -> list[str]:
    """Files of the chart that are not as they would be made."""
    there = {
        str(path.relative_to(CHART)): path
        for path in CHART.rglob("*")
        if path.is_file() and path.name not in BY_HAND
    }
    wrong = [name for name in there if name not in made]
    return wrong + [
        name
        for name, text in made.items()
        if name not in there or there[name].read_text(encoding="utf-8") != text
    ]


def main() -> int:
    """Write the chart, or only print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    made = list_files()
    wrong = find_differences(made)
    if parser.parse_args().check:
        print("\n".join(wrong) or "the chart is up to date")
        return 1 if wrong else 0
    for name in wrong:
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in made:
            path.write_text(made[name], encoding="utf-8")
        else:
            path.unlink()
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
