"""Documents of policies that delete, as records and programs."""

from collections.abc import Iterable

import orjson

from lictor.assembly import compile_cleanups
from lictor.cluster import resource as kinds
from lictor.cluster.cleanup_kinds import CleanupRecord
from lictor.compile.cleanup import CleanupProgram
from lictor.errors import LoadError
from lictor.lang.resource_names import ResourceNames
from lictor.load.policies import Loaded, has_errors, load_documents
from lictor.model.cel_policy import CelException, DeletingPolicy
from lictor.model.cleanup import CleanupPolicy
from lictor.model.finding import Severity
from lictor.ports import HttpLimits, Lookups
from lictor.raw import JsonObject

CLEANUP_KINDS = (
    kinds.CLUSTER_CLEANUP_POLICY,
    kinds.CLEANUP_POLICY,
    kinds.DELETING_POLICY,
    kinds.NAMESPACED_DELETING_POLICY,
)


def read_cleanup(document: JsonObject) -> CleanupRecord:
    """The record of a document; LoadError, which names all problems, where it is none."""
    loaded = load_documents(orjson.dumps(document), str(document.get("kind")))
    records = list_cleanups(loaded)
    if has_errors(loaded.problems) or not records:
        texts = [
            f"{each.field}: {each.message}" if each.path else each.message
            for each in loaded.problems
            if each.severity is Severity.ERROR
        ]
        raise LoadError("; ".join(texts) or "not a policy that deletes")
    return records[0]


def list_cleanups(loaded: Loaded) -> tuple[CleanupRecord, ...]:
    """All policies that delete among what was loaded."""
    return (
        *(each.record for each in loaded.cleanups),
        *(each.record for each in loaded.cel_policies if isinstance(each.record, DeletingPolicy)),
    )


def compile_record(
    record: CleanupRecord,
    lookups: Lookups,
    *,
    exceptions: Iterable[CelException] = (),
    names: ResourceNames,
    http_limits: HttpLimits,
) -> CleanupProgram:
    """The program of a record; CompileError where it makes no sense."""
    (program,) = compile_cleanups(
        [record] if isinstance(record, CleanupPolicy) else (),
        lookups=lookups,
        cel_policies=[record] if isinstance(record, DeletingPolicy) else (),
        cel_exceptions=tuple(exceptions),
        resource_names=names,
        http_limits=http_limits,
    )
    return program
