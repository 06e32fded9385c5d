"""`cleanup --dry-run`: what cleanup and deleting policies would delete from a cluster."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from lictor.cli.cluster_options import query_cluster, render_record, with_cluster
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.inputs.sources import read_policies
from lictor.core.errors import LoadError, UsageError
from lictor.core.families.kind_facts import Role
from lictor.core.load.policies import load_documents, refuse_errors
from lictor.core.raw import JsonObject
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names

if TYPE_CHECKING:
    from lictor.controllers.cleanup.preview import CleanupPreview
    from lictor.kubernetes.client import Client

_EXAMPLES = """\
# What would all policies of the cluster delete if they ran now?
lictor cleanup --dry-run

# Only these; with the namespace if the name alone is not enough
lictor cleanup --dry-run nightly default/cleanup-pods

# A policy that is not in the cluster yet
lictor cleanup --dry-run --file policy.yaml --format json"""


@click.command(cls=FlagCommand, arity=(0, None), examples=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted; required.")
@slice_option("-f", "--file", help="Policies from files or folders, instead of the cluster's own.")
@click.option(
    "--exceptionNamespace",
    "exception_namespace",
    default="",
    help="Namespace whose PolicyExceptions apply; * means all. As the controller's flag.",
)
@with_cluster
def cleanup(
    *,
    arguments: tuple[str, ...],
    dry_run: bool,
    file: tuple[str, ...],
    form: str,
    namespace: str,
    prefix: str,
    **cluster: str,
) -> int:
    """Show what the cleanup and deleting policies of a cluster would delete.

    Policies are named as NAME or NAMESPACE/NAME; without a name all are used. Nothing is deleted:
    that is the work of the cleanup controller alone, on each policy's schedule.

    Exits with 0 if every policy was evaluated on every object, with 1 if one could not be,
    and with 2 on a wrong call.
    """
    if not dry_run:
        raise UsageError("nothing is deleted from the command line: give --dry-run")
    if file and arguments:
        raise UsageError("give names of policies in the cluster or --file, not both")
    given = list(_load(file))
    flags = Flags(exception_namespace=cluster.pop("exception_namespace"))
    names = Names(prefix, namespace)
    previews = query_cluster(
        **cluster, query=lambda client: _list_previews(client, flags, names, arguments, given)
    )
    click.echo(render_record(previews) if form == "json" else render_text(previews), nl=False)
    return 1 if any(each.problems or each.undecided for each in previews) else 0


def _load(paths: Sequence[str]) -> Iterator[JsonObject]:
    if not paths:
        return
    found = False
    for text in read_policies(paths):
        loaded = load_documents(text.content, text.path)
        refuse_errors(loaded)
        bodies = [each.body for each in loaded.with_role(Role.DELETION)]
        found = found or bool(bodies)
        yield from bodies
    if not found:
        raise LoadError("there is no cleanup or deleting policy in these files")


async def _list_previews(
    client: "Client", flags: Flags, names: Names, wanted: Sequence[str], given: Sequence[JsonObject]
) -> "list[CleanupPreview]":
    from lictor.controllers.cleanup.preview import preview_cleanups

    return [each async for each in preview_cleanups(client, flags, names, wanted, given)]


def render_text(previews: "Sequence[CleanupPreview]") -> str:
    """One paragraph for each policy."""
    lines = [line for preview in previews for line in _render(preview)]
    return "".join(f"{line}\n" for line in lines or ["no policy that deletes"])


def _render(preview: "CleanupPreview") -> Iterator[str]:
    name = "/".join(filter(None, (preview.namespace, preview.name)))
    for problem in preview.problems:
        yield f"{preview.kind} {name}: {problem}"
    if not preview.next_execution:
        return
    yield f"{preview.kind} {name} would delete at {preview.next_execution}:"
    for item in preview.resources:
        yield f"  {'/'.join(filter(None, (item.get('namespace'), item['kind'], item['name'])))}"
    for each in preview.undecided:
        yield f"  not {each['what']}: {each['why']}"
    if not preview.resources:
        yield "  nothing of what is there now"
