"""`migrate`: from Kyverno to lictor, and back."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lictor.addons.migrate.command_output import render_comparison, render_difference, render_report
from lictor.cli.cluster_options import count_noun, query_cluster, render_record
from lictor.cli.flag_command import FlagCommand, format_option
from lictor.core.errors import UsageError
from lictor.core.raw import Json, JsonObject
from lictor.core.release import DEFAULT_IMAGE, VERSION

if TYPE_CHECKING:
    from lictor.addons.migrate.inventory import KyvernoInventory
    from lictor.addons.migrate.verdicts import Comparison, VerdictDifference
    from lictor.core.load.yaml import Document
    from lictor.core.model.finding import FieldPath
    from lictor.install.installation import Installation
    from lictor.kubernetes.client import Client
    from lictor.kubernetes.names import Names
    from lictor.lint.render import LintReport

_EXAMPLES = """\
# What would differ if lictor took Kyverno's place in this cluster?
lictor migrate

# The same for files: helm template, kubectl get -o yaml, folders of policies
lictor migrate rendered-chart.yaml policies/

# Keep what is there, take over, and go back
lictor migrate --save kyverno-before.json
lictor install --namespace kyverno --prefix kyverno --apply
lictor migrate --restore kyverno-before.json

# Compare both on live requests for an hour, in the cluster
lictor migrate --compare --in-cluster --for 1h --image registry.example/lictor:0.1.0 | \\
  kubectl apply -f -
kubectl logs -n lictor -f job/lictor-compare"""
_DEFAULT = "kyverno"
_ADDRESS = re.compile(r"[^/\s]+:[0-9]{1,5}|[-a-z0-9]+/[-a-z0-9]+")


@click.command(cls=FlagCommand, arity=(0, None), examples=_EXAMPLES)
@click.option(
    "--namespace", default=_DEFAULT, show_default=True, help="Where Kyverno is installed."
)
@click.option(
    "--prefix", default=_DEFAULT, show_default=True, help="Prefix of the names of its objects."
)
@click.option(
    "--image",
    default=DEFAULT_IMAGE,
    show_default=True,
    help="The image of lictor that the plan names.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write Kyverno's objects to this file, for --restore; no policies, reports or Secrets.",
)
@click.option(
    "--restore",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Put the objects of this file back in place of lictor's, Pod by Pod.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Evaluate live requests beside Kyverno, without effect, and report different responses.",
)
@click.option(
    "--for",
    "duration",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long --compare goes on.",
)
@click.option(
    "--reached-by",
    default="",
    metavar="HOST:PORT|NAMESPACE/SERVICE",
    help="Where the API server reaches this process with --compare.",
)
@click.option(
    "--in-cluster",
    is_flag=True,
    help="With --compare: print the manifests of a Job that does it in the cluster.",
)
@click.option("--kubeconfig", default="", help="The kubeconfig file to use.")
@click.option("--context", default="", help="The context of the kubeconfig to use.")
@format_option("text", "json")
def migrate(
    *,
    arguments: tuple[str, ...],
    save: Path | None,
    restore: Path | None,
    compare: bool,
    kubeconfig: str,
    context: str,
    **options: Json,
) -> int:
    """Show what would differ if lictor replaced Kyverno, and the steps to do it.

    Reads the installation in the cluster, or files in PATHS (rendered charts, exported objects,
    policies): settings, flags, policies, exceptions, rights, reports. Writes nothing to the
    cluster, but for --restore, and --compare while it goes on.

    Exits with 0 where everything would work as before, with 1 where something would not, and with 2
    on a wrong call.
    """
    modes = {"--save": save, "--restore": restore, "--compare": compare}
    given = [name for name, value in modes.items() if value]
    if len(given) > 1 or (given and arguments):
        raise UsageError(f"{' and '.join(given)}: not together, and not with PATHS")
    if compare:
        return _compare(kubeconfig, context, **options)
    if restore is not None:
        return _restore(restore, kubeconfig, context, **options)
    inventory = _read(arguments, kubeconfig, context, **options)
    if save is not None:
        return _save(inventory, save)
    return _report(inventory, **options)


# --- reading


def _read(
    paths: tuple[str, ...], kubeconfig: str, context: str, *, namespace: str, prefix: str, **_: Json
) -> "KyvernoInventory":
    from msgspec.structs import replace

    from lictor.addons.migrate.inventory import identify, read_inventory, sort_objects
    from lictor.kubernetes.names import Names

    names = Names(prefix, namespace)
    if paths:
        read = list(_read_files(paths))
        found = sort_objects((body for body, _ in read), names)
        found = replace(found, places={identify(body): locate for body, locate in read})
        if found.is_empty and not found.policies:
            raise UsageError(f"nothing of Kyverno's was found in {', '.join(paths)}")
        return found
    found = query_cluster(kubeconfig, context, lambda client: read_inventory(client, names))
    if found.is_empty:
        raise UsageError(
            f"no installation of Kyverno in namespace {namespace} under the names {prefix}-...; "
            "--namespace and --prefix locate it"
        )
    return found


def _read_files(paths: Iterable[str]) -> Iterator[tuple[JsonObject, "Callable[[FieldPath], str]"]]:
    """Every object, with what gives `file:line` of its fields."""
    from lictor.cli.inputs.sources import read_policies
    from lictor.core.load.policies import is_list
    from lictor.core.load.yaml import iter_documents

    for text in read_policies(paths):
        for document in iter_documents(text.content, text.path):
            body = document.body
            is_many = isinstance(body, dict) and is_list(body)
            for number, each in enumerate((body.get("items") or ()) if is_many else [body]):
                if isinstance(each, dict) and _is_named(each):
                    yield each, partial(_locate, document, ("items", number) if is_many else ())


def _locate(document: "Document", start: "FieldPath", path: "FieldPath") -> str:
    return f"{document.source}:{document.position((*start, *path))[0]}"


def _is_named(body: JsonObject) -> bool:
    metadata = body.get("metadata")
    has_name = isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
    return has_name and all(isinstance(body.get(part), str) for part in ("apiVersion", "kind"))


# --- keeping and bringing back


def _save(inventory: "KyvernoInventory", file: Path) -> int:
    import json

    from lictor.addons.migrate.restoring import collect_saved

    saved = collect_saved(inventory)
    whole = {"apiVersion": "v1", "kind": "List", "items": saved}
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{count_noun(len(saved), 'object')} written to {file}")
    return 0


def _restore(
    file: Path, kubeconfig: str, context: str, *, namespace: str, prefix: str, **_: Json
) -> int:
    from lictor.addons.migrate.restoring import restore_objects
    from lictor.kubernetes.names import Names

    saved = [body for body, _ in _read_files([str(file)])]

    async def restore(client: "Client") -> None:
        async for line in restore_objects(client, Names(prefix, namespace), saved):
            click.echo(line)

    query_cluster(kubeconfig, context, restore)
    return 0


# --- comparing


def _compare(  # noqa: PLR0913  (one for each option)
    kubeconfig: str,
    context: str,
    *,
    namespace: str,
    prefix: str,
    duration: str,
    reached_by: str,
    in_cluster: bool,
    image: str,
    form: str,
) -> int:
    from lictor.kubernetes.flags import is_duration
    from lictor.kubernetes.names import Names

    if not is_duration(duration):
        raise UsageError(f"--for {duration}: write a duration such as 30s or 15m")
    names = Names(prefix, namespace)
    if in_cluster:
        return _print_job(names, image, duration, form)
    if not _ADDRESS.fullmatch(reached_by):
        raise UsageError(
            "--compare needs --reached-by HOST:PORT or NAMESPACE/SERVICE, where the API server "
            "reaches this process; --in-cluster prints a Job that runs where it is reached"
        )
    return _compare_live(names, duration, reached_by, form, (kubeconfig, context))


def _print_job(names: "Names", image: str, duration: str, form: str) -> int:
    from lictor.addons.migrate.comparison import build_compare_job
    from lictor.cli.crds import render_manifests

    manifests = build_compare_job(names, image, duration)
    click.echo(render_manifests(manifests, "json" if form == "json" else "yaml"), nl=False)
    return 0


def _compare_live(
    names: "Names", duration: str, reached_by: str, form: str, config: tuple[str, str]
) -> int:
    from lictor.addons.migrate.comparison import CompareOptions, LiveComparison
    from lictor.core.lang.duration import NANOSECONDS, parse_duration
    from lictor.install.taking_over import list_predecessors, list_unusual, read_flags

    kubeconfig, context = config
    port = int(reached_by.rpartition(":")[2]) if ":" in reached_by else 9443
    installation = _describe_installation(names, "")

    async def run(client: "Client") -> "Comparison":
        flags = read_flags(await list_predecessors(client, installation), installation)
        arguments = [f"--{name}={value}" for name, value in list_unusual(flags).items()]
        given = {"kubeconfig": kubeconfig, "context": context}
        arguments += [f"--{name}={value}" for name, value in given.items() if value]
        options = CompareOptions(
            seconds=parse_duration(duration) / NANOSECONDS,
            address=reached_by,
            port=port,
            arguments=tuple(arguments),
        )
        on_difference = _print_difference if form == "text" else (lambda _: None)
        return await LiveComparison(client, names, options, on_difference).run()

    found = query_cluster(kubeconfig, context, run)
    click.echo(render_record(found) if form == "json" else render_comparison(found), nl=False)
    return 0 if found.is_alike else 1


def _print_difference(found: "VerdictDifference") -> None:
    click.echo(render_difference(found), nl=False)


# --- output


def _describe_installation(names: "Names", image: str) -> "Installation":
    from lictor.install.installation import Installation

    return Installation(
        image=image, version=VERSION, prefix=names.prefix, namespace=names.namespace
    )


def _report(inventory: "KyvernoInventory", *, image: str, form: str, **_: Json) -> int:
    from lictor.addons.migrate.plan import build_plan
    from lictor.addons.migrate.report import build_report

    installation = _describe_installation(inventory.names, image)
    report = build_report(inventory, installation, _lint)
    plan = build_plan(report, image)
    if form == "json":
        click.echo(render_record({"report": report, "plan": plan}), nl=False)
    else:
        click.echo(render_report(report, plan), nl=False)
    return 0 if report.is_clear else 1


def _lint(texts: "Iterable[tuple[str, bytes]]") -> "LintReport":
    from lictor.cli.inputs.records import FILE_RECORDS
    from lictor.lint.run import lint_texts

    return lint_texts(texts, FILE_RECORDS)
