"""Write docs/reference/commands.md: every command, flag and setting."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from lictor.cli.controller_flags import ControllerCommand
from lictor.cli.main import PROGRAM, cli
from lictor.kubernetes.flags import WITHOUT_EFFECT
from lictor.kubernetes.settings import read_settings
from lictor.webhook.metrics_settings import read_metrics_settings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands and settings

Every command, flag, setting and environment variable. Written by `scripts/make_reference.py` from
the program.

All commands accept `-h` and `--help`. Switches accept a value (`--flag=false`). Every command
accepts the log flags of Kyverno: `-v` (with or without a number) lists ignored documents, the
others have no effect.
[Exit codes](../operate/troubleshooting.md#exit-codes) has one table for all commands.
"""
# What the entries of the ConfigMap of an installation mean, and what holds where they are missing.
SETTINGS = {
    "resourceFilters": ("`[kind,namespace,name]` ...: objects that no policy applies to", "none"),
    "excludeUsernames": ("callers that no policy applies to; `!name` is never excluded", "none"),
    "excludeGroups": ("the same, by group", "none"),
    "excludeRoles": ("the same, by Role (`namespace:name`)", "none"),
    "excludeClusterRoles": ("the same, by ClusterRole", "none"),
    "defaultRegistry": ("registry of images without one", "`docker.io`"),
    "enableDefaultRegistryMutation": ("add that registry to such images", "`true`"),
    "generateSuccessEvents": ("also write events for passing resources", "`false`"),
    "successEventActions": ("actions for which such events are written", "all"),
    "webhooks": ("`namespaceSelector` and `objectSelector` of the webhooks, as JSON", "none"),
    "webhookAnnotations": ("JSON object, set on the webhook configurations", "none"),
    "webhookLabels": ("JSON object, set on the webhook configurations", "none"),
    "matchConditions": ("JSON list of CEL conditions for the webhooks", "none"),
    "updateRequestThreshold": ("limit of waiting update requests", "1000"),
    "maxContextSize": ("size of the context of one rule", "`2Mi`"),
    "logLevel": ("log level: error, warning, info, debug, trace", "`--v`"),
}
METRICS_SETTINGS = {
    "namespaces": ("`include` and `exclude`, lists of namespaces, as JSON", "all"),
    "metricsExposure": ("by metric: `enabled`, `disabledLabelDimensions`, as JSON", "all"),
    "bucketBoundaries": ("exported buckets of histograms, separated by commas", "all"),
}
VARIABLES = {
    "KUBECONFIG": "kubeconfig files, without `--kubeconfig`",
    "POD_NAMESPACE": "namespace of the installation, without `--namespace`",
    "KYVERNO_NAMESPACE": "the same, if that is not set",
    "KYVERNO_SCOPED_TOKEN_PATH": "file with the token that `apiCall.service` sends",
    "LICTOR_DEBUG": "show the traceback of an internal error",
}


class _Recorder(dict[str, str]):
    """A ConfigMap's data that records the requested keys."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get(self, key: str, default: object = None) -> None:  # type: ignore[override]  # noqa: ARG002
        if key not in self.asked:
            self.asked.append(key)


def render_page() -> str:
    """The whole page."""
    # With its own words for help: click remembers those of the first context.
    root = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    parts = [HEAD, *_render_commands(root), _render_controllers(root), _render_ignored()]
    parts += [_render_settings(), _render_variables()]
    return "\n".join(parts)


def _walk(ctx: click.Context) -> Iterator[click.Context]:
    command = ctx.command
    if not isinstance(command, click.Group):
        yield ctx
        return
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        if found is not None and name != "help":
            yield from _walk(click.Context(found, info_name=name, parent=ctx))


def _render_commands(root: click.Context) -> Iterator[str]:
    yield "## Commands\n"
    shared = _shared_flags(root)
    for ctx in _walk(root):
        options = [
            each
            for each in _list_options(ctx)
            if each.opts[0] not in shared or not _is_controller(ctx)
        ]
        text = f"### {ctx.command_path}\n\n{ctx.command.get_short_help_str(limit=200)}\n"
        if _is_controller(ctx):
            text += "\nAlso [the flags of the controllers](#flags-of-serve-and-control).\n"
        yield text + (f"\n{_render_options(options)}" if options else "")


def _is_controller(ctx: click.Context) -> bool:
    return isinstance(ctx.command, ControllerCommand)


def _list_options(ctx: click.Context) -> list[click.Option]:
    found = [each for each in ctx.command.params if isinstance(each, click.Option)]
    return [each for each in found if not each.hidden]


def _shared_flags(root: click.Context) -> set[str]:
    """The flags that all controllers have."""
    sets = [{o.opts[0] for o in _list_options(ctx)} for ctx in _walk(root) if _is_controller(ctx)]
    return set.intersection(*sets)


def _render_controllers(root: click.Context) -> str:
    control = next(ctx for ctx in _walk(root) if ctx.info_name == "control")
    shared = _shared_flags(root)
    options = [each for each in _list_options(control) if each.opts[0] in shared]
    return (
        "## Flags of serve and control\n\n"
        "With Kyverno's names; one dash works, too. "
        "`lictor install --flag NAME=VALUE` sets them in a cluster.\n\n" + _render_options(options)
    )


def _render_options(options: Iterable[click.Option]) -> str:
    rows = [(_name(each), _default(each), each.help or "") for each in options]
    return _render_table(("flag", "default", ""), rows)


def _name(option: click.Option) -> str:
    return ", ".join(f"`{word}`" for word in option.opts)


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default
    if option.is_flag:
        return "`true`" if value is True else ""
    if value is None or callable(value) or value in ("", ()) or "UNSET" in repr(value).upper():
        return ""
    return f"`{value}`"


def _render_ignored() -> str:
    rows = [
        (", ".join(f"`{n}`" for n in flags), reason) for reason, flags in WITHOUT_EFFECT.items()
    ]
    return (
        "## Kyverno's flags without effect\n\n"
        "`serve` and `control` accept them, so that manifests need no change, and log at the "
        "start that they have no effect.\n\n" + _render_table(("flag", "why"), rows)
    )


def _render_settings() -> str:
    data, metrics = _Recorder(), _Recorder()
    read_settings({"data": data})
    read_metrics_settings({"data": metrics})
    return (
        "## Settings\n\n"
        "Entries of the ConfigMap named like the installation (`lictor`). "
        "A change takes effect at once.\n\n"
        + _render_table(("entry", "default", ""), _list_settings(data.asked, SETTINGS))
        + "\nEntries of the ConfigMap `lictor-metrics`.\n\n"
        + _render_table(("entry", "default", ""), _list_settings(metrics.asked, METRICS_SETTINGS))
    )


def _list_settings(
    asked: Iterable[str], words: dict[str, tuple[str, str]]
) -> list[tuple[str, str, str]]:
    """Every entry that the program reads; one without words is an error, and so is the opposite."""
    found = list(asked)
    if set(found) != set(words):
        raise SystemExit(f"describe these settings: {sorted(set(found) ^ set(words))}")
    return [(f"`{name}`", words[name][1], words[name][0]) for name in found]


def _render_variables() -> str:
    rows = [(f"`{name}`", words) for name, words in VARIABLES.items()]
    return "## Environment\n\n" + _render_table(("variable", ""), rows)


def _render_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |\n" for line in lines
    )


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
    print(f"{PAGE} written")
