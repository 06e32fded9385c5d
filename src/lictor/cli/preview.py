"""`preview`: which objects of a cluster a policy would refuse or change if it were enforced now."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lictor.cli.cluster_options import (
    count_noun,
    query_cluster,
    render_columns,
    render_record,
    with_cluster,
)
from lictor.cli.flag_command import FlagCommand
from lictor.cli.inputs.sources import read_policies
from lictor.core.errors import LoadError
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents, refuse_errors
from lictor.core.model.metadata import PolicyRecord
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names

if TYPE_CHECKING:
    from lictor.controllers.existing_objects import PolicyPreview, PreviewFinding

_EXAMPLES = """\
# A policy that is not in the cluster yet
lictor preview policy.yaml

# One that only audits: what if it were enforced?
lictor preview require-labels --format json"""

_UNDELETABLE = "could not be deleted (rules that name no operations match deletions, too)"


@click.command(cls=FlagCommand, arity=(1, 1), examples=_EXAMPLES)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="How many objects of each sort are listed; all are counted.",
)
@click.option(
    "--exceptionNamespace",
    "exception_namespace",
    default="",
    help="Namespace whose PolicyExceptions apply; * means all. As the controllers' flag.",
)
@with_cluster
def preview(
    *,
    arguments: tuple[str, ...],
    limit: int,
    exception_namespace: str,
    form: str,
    namespace: str,
    prefix: str,
    **cluster: str,
) -> int:
    """Show what POLICY would deny or change in a cluster if it were enforced now.

    POLICY is a file or folder, or the name of a policy in the cluster (NAMESPACE/NAME if the
    name alone is not enough). Every object of its kinds is evaluated as if it were created
    now, page by page; nothing is written.

    Exits with 0 if nothing would be denied or changed, with 1 if something would or cannot
    be decided, and with 2 on a wrong call.
    """
    from lictor.controllers.scan.preview import preview_policies

    (policy,) = arguments
    given: Sequence[PolicyRecord] | str = _load(policy) if Path(policy).exists() else policy
    flags = Flags(exception_namespace=exception_namespace)
    names = Names(prefix, namespace)
    found = query_cluster(
        **cluster, query=lambda client: preview_policies(client, flags, names, given, limit=limit)
    )
    click.echo(render_record(found) if form == "json" else render_preview(found), nl=False)
    affected = found.refused or found.changed or found.undecided or found.undeletable
    return 1 if affected or found.problems else 0


def _load(path: str) -> "list[PolicyRecord]":
    records: list[PolicyRecord] = []
    for text in read_policies([path]):
        loaded = load_documents(text.content, text.path)
        refuse_errors(loaded)
        records += [
            each.record for each in loaded.listed if not registry().of(each.record).is_native
        ]
    if not records:
        raise LoadError(f"{path}: there is no policy in it")
    return records


def render_preview(found: "PolicyPreview") -> str:
    """The preview as text."""
    return "".join(f"{line}\n" for line in _render(found))


def _render(found: "PolicyPreview") -> Iterator[str]:
    objects, kinds = count_noun(found.judged, "object"), count_noun(found.kinds, "kind")
    yield f"{', '.join(found.policies)}: {objects} of {kinds} evaluated"
    for title, count, findings in (
        ("would be refused", found.refused, found.refusals),
        ("would be changed", found.changed, found.changes),
        ("cannot be decided", found.undecided, found.doubts),
        (_UNDELETABLE, found.undeletable, found.deletions),
    ):
        if count:
            yield f"{count} {title}:"
            yield from _list(findings)
    if not (found.refused or found.changed or found.undecided or found.undeletable):
        yield "nothing would be refused or changed"
    for problem in found.problems:
        yield f"not read: {problem}"


def _list(findings: "Sequence[PreviewFinding]") -> list[str]:
    rows = [
        (
            each.kind,
            "/".join(filter(None, (each.namespace, each.name))),
            "/".join(filter(None, (each.policy, each.rule))),
            " ".join(each.message.split()),
        )
        for each in findings
    ]
    return render_columns(rows) if rows else []
