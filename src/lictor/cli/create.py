"""`create`: writes files to start from."""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
import msgspec

from lictor.cli.flag_command import FlagCommand, slice_option, split_commas
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.report.json_text import render_json
from lictor.core.report.yaml_text import render_scalar

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
    policies = [_render_policy(given, "rules") for given in rules]
    policies += [_render_policy(given, "resources") for given in resources]
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\n\n"
        f"# list of policy values\npolicies:\n{''.join(policies)}\n"
        f"# list of global values\nglobalValues:\n{_render_pairs(global_values)}\n"
        "# list of namespace selectors\nnamespaceSelector:\n"
        f"{''.join(_render_namespace(given) for given in namespaces)}"
    )
    write_text(text, output)


def _render_pairs(pairs: tuple[str, ...]) -> str:
    return render_values(parse_pairs(pairs), "  ")


def _render_policy(given: str, kind: str) -> str:
    policy, name, pairs = _split_values(given, 2)
    return (
        f"  - name: {render_scalar(policy)}\n    {kind}:\n      - name: {render_scalar(name)}\n"
        f"        values:\n{render_values(parse_pairs(pairs), '          ')}"
    )


def _render_namespace(given: str) -> str:
    name, _, pairs = _split_values(given, 1)
    labels = render_labels(parse_pairs(pairs), "      ")
    return f"  - name: {render_scalar(name)}\n    labels:\n{labels}"


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
        _render_result(given, result)
        for result, flag in (("pass", "passing"), ("fail", "failing"), ("skip", "skipped"))
        for given in options[flag]
    ]
    values = str(options["values"])
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n"
        f"metadata:\n  name: {render_scalar(str(options['name']))}\n\n"
        f"# list of policy files\npolicies:\n{render_list_items(options['policies'], '  ')}\n"
        f"# list of resource files\nresources:\n{render_list_items(options['resources'], '  ')}\n"
        f"# variables file (optional)\nvariables: {render_scalar(values) if values else ''}\n\n"
        f"# list of expected results\nresults:\n{''.join(results)}"
    )
    write_text(text, str(options["output"]))


def _render_result(given: str, result: str) -> str:
    parts = given.split(",")
    if len(parts) not in (5, 6):
        raise click.UsageError(
            f'"{given}" is no expected result: write policy,rule,name,namespace,kind'
        )
    policy, rule, name, namespace, kind = parts[:5]
    resource = f"{namespace}/{name}" if namespace else name
    patched = f"    patchedResources: {render_scalar(parts[5])}\n" if len(parts) == 6 else ""
    return (
        f"  - policy: {render_scalar(policy)}\n    rule: {render_scalar(rule)}\n"
        f"    resources:\n      - {render_scalar(resource)}\n"
        f"    kind: {render_scalar(kind)}\n{patched}    result: {result}\n"
    )


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
    text = (
        "apiVersion: kyverno.io/v2\nkind: PolicyException\n"
        f"metadata:\n  name: {render_scalar(arguments[0])}\n"
        f"  namespace: {render_scalar(str(more['namespace']) or 'default')}\n"
        f"spec:\n  background: {'true' if background else 'false'}\n  match:\n"
        f"{_render_filters('any', any_of)}{_render_filters('all', all_of)}"
        f"  exceptions:\n{''.join(_render_rules(given) for given in more['policy_rules'])}"
    )
    write_text(text, str(more["output"]))


def _render_rules(given: str) -> str:
    policy, *rules = given.split(",")
    if not policy or not all(rules) or not rules:
        raise click.UsageError(f'"{given}" names no rules: write policy,rule-1,rule-2')
    return (
        f"    - policyName: {render_scalar(policy)}\n      ruleNames:\n"
        f"{render_list_items(rules, '        ')}"
    )


def _render_filters(word: str, given: tuple[str, ...]) -> str:
    if not given:
        return ""
    return f"    {word}:\n" + "".join(_render_filter(filter_) for filter_ in given)


def _render_filter(given: str) -> str:
    fields: dict[str, list[str]] = {}
    for part in given.split(","):
        key, equals, value = part.partition("=")
        if key not in _FIELDS or not equals:
            known = ", ".join(f"{name}=" for name in _FIELDS)
            raise click.UsageError(f'"{part}" in "{given}" is no filter: use {known}')
        fields.setdefault(_FIELDS[key], []).append(value)
    lines = "".join(
        f"        {field}:\n{render_list_items(fields[field], '          ')}"
        for field in _FIELDS.values()
        if field in fields
    )
    return f"    - resources:\n{lines}"


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
def user_info(
    *,
    output: str,
    username: str,
    roles: tuple[str, ...],
    cluster_roles: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Create a user info file."""
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\n\n"
        f"# list of roles\nroles:\n{render_list_items(roles, '  ')}\n"
        f"# list of cluster roles\nclusterRoles:\n{render_list_items(cluster_roles, '  ')}\n"
        f"userInfo:\n  # user name\n  username: {render_scalar(username)}\n\n"
        f"  # list of groups\n  groups:\n{render_list_items(groups, '    ')}"
    )
    write_text(text, output)


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
    text = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {render_scalar(name)}\n"
        f"  namespace: {render_scalar(namespace)}\ndata:\n  namespaces: |\n"
        f"{textwrap.indent(shown, '    ')}\n"
    )
    write_text(text, output)


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
    chosen = _ALL_VERBS if verbs[0] == "all" else _split_all(verbs)
    labels = "".join(
        f'      {render_scalar(f"rbac.kyverno.io/aggregate-to-{name}")}: "true"\n'
        for name in controllers
    )
    name = render_scalar(f"kyverno-{arguments[0]}-permission")
    text = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"
        f"metadata:\n  name: {name}\n  labels:\n{labels}"
        f"rules:\n  - apiGroups: {_render_list([api_groups])}\n"
        f"    resources: {_render_list(_split_all(resources))}\n"
        f"    verbs: {_render_list(chosen)}\n"
    )
    write_text(text, output)


def _split_all(given: Iterable[str]) -> list[str]:
    return [part for text in given for part in split_commas(text)]


def _render_list(items: Iterable[str]) -> str:
    return "[" + ", ".join(render_json(item) for item in items) + "]"


_PLAIN_VALUES = frozenset(("true", "false"))


def write_text(text: str, path: str) -> None:
    """Print the text, or write it to a file."""
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)


def render_list_items(items: Iterable[str], indent: str) -> str:
    """Render the lines of a list."""
    return "".join(f"{indent}- {render_scalar(item, indent)}\n" for item in items)


def render_labels(labels: Mapping[str, str], indent: str) -> str:
    """The lines of a mapping from text to text."""
    return "".join(
        f"{indent}{render_scalar(key)}: {render_scalar(value, indent)}\n"
        for key, value in sorted(labels.items())
    )


def render_values(values: Mapping[str, str], indent: str) -> str:
    """The lines of a mapping whose values may be numbers and booleans."""
    return "".join(
        f"{indent}{render_scalar(key)}: {_render_value(value, indent)}\n"
        for key, value in sorted(values.items())
    )


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` pairs."""
    made: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals or not value:
            raise click.UsageError(f'"{pair}" is no pair: write key=value')
        made[key] = value
    return made


def _render_value(text: str, indent: str) -> str:
    if text in _PLAIN_VALUES or text.removeprefix("-").isdecimal():
        return text
    return render_scalar(text, indent)


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
