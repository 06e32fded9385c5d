"""`create`: writes files to start from."""

import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from lictor.cli.flag_command import FlagCommand, slice_option, split_commas
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.raw import Json, JsonObject
from lictor.core.report.json_text import render_json
from lictor.core.report.yaml_text import render_scalar, render_yaml

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "policy_templates"
_PLAIN_VALUES = frozenset(("true", "false"))


def render_template(template: str, /, **facts: Json) -> str:
    """Render `template`.yaml.j2; every free text in it goes through one of the filters."""
    return _load_templates().get_template(f"{template}.yaml.j2").render(facts)


@cache
def _load_templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (YAML; every free text goes through a filter)
    )
    filters = {
        "scalar": render_scalar,
        "value": _render_value,
        "yaml": _render_block,
        "list_text": _render_list,
    }
    made.filters.update(filters)
    return made


def _render_value(text: str, indent: str) -> str:
    """A value that may be a number or a boolean."""
    is_plain = text in _PLAIN_VALUES or text.removeprefix("-").isdecimal()
    return text if is_plain else render_scalar(text, indent)


def _render_block(body: Json, indent: int) -> str:
    return textwrap.indent(render_yaml(body).rstrip("\n"), " " * indent)


def _render_list(items: list[str]) -> str:
    return "[" + ", ".join(render_json(item) for item in items) + "]"


_VALUES_EXAMPLES = (
    "lictor create values -g request.mode=dev -n prod,env=prod "
    "--rule policy,rule,env=demo --resource policy,resource,env=demo"
)


@click.command(cls=FlagCommand, examples=_VALUES_EXAMPLES)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@slice_option("-g", "--global", "global_values", help="A value for all policies: key=value.")
@click.option("-n", "--ns-selector", "namespaces", multiple=True, help="namespace,label=value,...")
@click.option("--resource", "resources", multiple=True, help="policy,resource,key=value,...")
@click.option("--rule", "rules", multiple=True, help="policy,rule,key=value,...")
def values(
    *,
    output: str,
    global_values: tuple[str, ...],
    namespaces: tuple[str, ...],
    resources: tuple[str, ...],
    rules: tuple[str, ...],
) -> None:
    """Create a values file."""
    policies = [_parse_policy(given, "rules") for given in rules]
    policies += [_parse_policy(given, "resources") for given in resources]
    _write(
        output,
        "values",
        policies=policies,
        global_values=_parse_pairs(global_values),
        namespaces=[_parse_namespace(given) for given in namespaces],
    )


def _parse_policy(given: str, field: str) -> JsonObject:
    name, part, pairs = _split_values(given, 2)
    return {"name": name, "field": field, "part": part, "pairs": _parse_pairs(pairs)}


def _parse_namespace(given: str) -> JsonObject:
    name, _, pairs = _split_values(given, 1)
    return {"name": name, "pairs": _parse_pairs(pairs)}


def _split_values(given: str, names: int) -> tuple[str, str, list[str]]:
    parts = [part for part in given.split(",") if part]
    if len(parts) <= names:
        raise click.UsageError(f'"{given}" is incomplete: see --help for the parts it needs')
    return parts[0], parts[1] if names == 2 else "", parts[names:]


_TEST_EXAMPLES = (
    "lictor create test -p policy.yaml -r resource.yaml -f values.yaml "
    "--pass policy-name,rule-name,resource-name,resource-namespace,resource-kind"
)


@click.command(cls=FlagCommand, examples=_TEST_EXAMPLES)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-n", "--name", default="test-name", help="Name of the test.", show_default=True)
@slice_option("-p", "--policy", "policies", help="Policy files.")
@slice_option("-r", "--resource", "resources", help="Resource files.")
@click.option("-f", "--values", default="", help="Values file.")
@click.option("--pass", "passing", multiple=True, help="policy,rule,name,namespace,kind that pass.")
@click.option("--fail", "failing", multiple=True, help="policy,rule,name,namespace,kind that fail.")
@click.option("--skip", "skipped", multiple=True, help="policy,rule,name,namespace,kind skipped.")
def test(**options: str | tuple[str, ...]) -> None:
    """Create a test file."""
    results = [
        _parse_result(given, result)
        for result, flag in (("pass", "passing"), ("fail", "failing"), ("skip", "skipped"))
        for given in options[flag]
    ]
    facts = {name: options[name] for name in ("name", "policies", "resources", "values")}
    _write(str(options["output"]), "test", results=results, **facts)


def _parse_result(given: str, result: str) -> JsonObject:
    parts = given.split(",")
    if len(parts) not in (5, 6):
        raise click.UsageError(
            f'"{given}" is no expected result: write policy,rule,name,namespace,kind'
        )
    policy, rule, name, namespace, kind = parts[:5]
    return {
        "policy": policy,
        "rule": rule,
        "resource": f"{namespace}/{name}" if namespace else name,
        "kind": kind,
        "patched": parts[5] if len(parts) == 6 else None,
        "result": result,
    }


_FIELDS = {"kind": "kinds", "name": "names", "namespace": "namespaces", "operation": "operations"}
_EXCEPTION_EXAMPLES = (
    'lictor create exception my-exception --namespace my-ns --policy-rules "policy,rule-1,rule-2" '
    '--any "kind=Pod,kind=Deployment,name=test-*"'
)


@click.command(
    cls=FlagCommand, arity=(1, 1), required_flags=["policy-rules"], examples=_EXCEPTION_EXAMPLES
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("--namespace", default="", help="Namespace of the exception.")
@click.option(
    "-b", "--background/--no-background", default=True, help="Also spare it in background scans."
)
@click.option("--policy-rules", multiple=True, help="policy,rule-1,rule-2,...")
@click.option("--any", "any_of", multiple=True, help="A filter: kind=Pod,name=test-*,...")
@click.option("--all", "all_of", multiple=True, help="A filter: kind=Pod,name=test-*,...")
def exception(
    *,
    arguments: tuple[str, ...],
    background: bool,
    any_of: tuple[str, ...],
    all_of: tuple[str, ...],
    **more: str | tuple[str, ...],
) -> None:
    """Create a policy exception with the given NAME."""
    _write(
        str(more["output"]),
        "exception",
        name=arguments[0],
        namespace=str(more["namespace"]) or "default",
        background=background,
        matches={
            "any": [_parse_filter(given) for given in any_of],
            "all": [_parse_filter(given) for given in all_of],
        },
        exceptions=[_parse_rules(given) for given in more["policy_rules"]],
    )


def _parse_rules(given: str) -> tuple[str, list[str]]:
    policy, *rules = given.split(",")
    if not policy or not all(rules) or not rules:
        raise click.UsageError(f'"{given}" names no rules: write policy,rule-1,rule-2')
    return policy, rules


def _parse_filter(given: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for part in given.split(","):
        key, equals, value = part.partition("=")
        if key not in _FIELDS or not equals:
            known = ", ".join(f"{name}=" for name in _FIELDS)
            raise click.UsageError(f'"{part}" in "{given}" is no filter: use {known}')
        fields.setdefault(_FIELDS[key], []).append(value)
    return {field: fields[field] for field in _FIELDS.values() if field in fields}


@click.command(
    "user-info",
    cls=FlagCommand,
    examples="lictor create user-info -u someone@example.com -g basic-user -c admin",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-u", "--username", default="", help="User name.")
@slice_option("-r", "--role", "roles", help="Roles.")
@slice_option("-c", "--cluster-role", "cluster_roles", help="Cluster roles.")
@slice_option("-g", "--group", "groups", help="Groups.")
def user_info(*, output: str, **facts: str | tuple[str, ...]) -> None:
    """Create a user info file."""
    _write(output, "user-info", **facts)


@click.command(
    "metrics-config",
    cls=FlagCommand,
    examples="lictor create metrics-config -i ns-included-1 -i ns-included-2 -e ns-excluded",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-n", "--name", default="kyverno-metrics", help="Name.", show_default=True)
@click.option("--namespace", default="kyverno", help="Namespace.", show_default=True)
@slice_option("-i", "--include", "included", help="Namespaces to include.")
@slice_option("-e", "--exclude", "excluded", help="Namespaces to exclude.")
def metrics_config(
    *, output: str, name: str, namespace: str, included: tuple[str, ...], excluded: tuple[str, ...]
) -> None:
    """Create a metrics configuration."""
    namespaces = {"include": included, "exclude": excluded}
    given = msgspec.json.encode({key: names for key, names in namespaces.items() if names})
    shown = msgspec.json.format(given, indent=2).decode()
    _write(output, "metrics-config", name=name, namespace=namespace, namespaces=shown)


_ALL_VERBS = ("create", "get", "update", "delete", "list", "watch")


@click.command(
    "cluster-role",
    cls=FlagCommand,
    arity=(1, 1),
    required_flags=["api-groups", "resources", "verbs"],
    examples="lictor create cluster-role jobs -g batch --resources jobs --verbs get,list",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-g", "--api-groups", default="", help="API group of the resources.")
@click.option(
    "--controllers",
    multiple=True,
    default=("background-controller",),
    show_default=True,
    help="Controllers that get the rights.",
)
@click.option("--resources", multiple=True, help="Resources, with commas between them.")
@click.option("--verbs", multiple=True, help="Verbs, with commas between them, or 'all'.")
def cluster_role(
    *,
    arguments: tuple[str, ...],
    output: str,
    api_groups: str,
    controllers: tuple[str, ...],
    resources: tuple[str, ...],
    verbs: tuple[str, ...],
) -> None:
    """Create a ClusterRole with the given NAME for resources that policies work on."""
    if not all(controllers):
        raise click.UsageError("invalid controller provided: it has no name")
    _write(
        output,
        "controller-rights",
        name=f"kyverno-{arguments[0]}-permission",
        controllers=controllers,
        api_group=api_groups,
        resources=_split_all(resources),
        verbs=_ALL_VERBS if verbs[0] == "all" else _split_all(verbs),
    )


def _split_all(given: Iterable[str]) -> list[str]:
    return [part for text in given for part in split_commas(text)]


def _parse_pairs(pairs: Iterable[str]) -> list[tuple[str, str]]:
    """Parse `key=value` pairs, sorted by key; the last value of a key counts."""
    made: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals or not value:
            raise click.UsageError(f'"{pair}" is no pair: write key=value')
        made[key] = value
    return sorted(made.items())


def _write(path: str, template: str, /, **facts: Json) -> None:
    """Print the file of a template, or write it to a path."""
    text = render_template(template, **facts)
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)


create = LazyGroup(
    name="create",
    help="Create files to start from.",
    lazy={
        "cluster-role": LazyCommand(
            "lictor.cli.create",
            "cluster_role",
            "Create a ClusterRole that gives controllers more rights.",
        ),
        "exception": LazyCommand("lictor.cli.create", "exception", "Create a policy exception."),
        "metrics-config": LazyCommand(
            "lictor.cli.create", "metrics_config", "Create a metrics configuration."
        ),
        "policy": LazyCommand(
            "lictor.cli.create_policy", "policy", "Create a policy with resources and a test."
        ),
        "test": LazyCommand("lictor.cli.create", "test", "Create a test file."),
        "user-info": LazyCommand("lictor.cli.create", "user_info", "Create a user info file."),
        "values": LazyCommand("lictor.cli.create", "values", "Create a values file."),
    },
    examples=(
        "lictor create test -p policy.yaml -r resource.yaml "
        "--pass policy,rule,resource,namespace,kind\n"
        "lictor create values -g request.mode=dev -n prod,env=prod\n"
        "lictor create user-info -u someone@example.com -g basic-user -c admin"
    ),
)
