"""Deleting objects: at once, or when those who hold them let go."""

from datetime import UTC, datetime, timedelta

import msgspec

from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.field_errors import invalid, unsupported
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.objects import is_ending, key_of, version_of
from lictor.addons.apiserver.request import RequestAttributes, refuse_options
from lictor.addons.apiserver.status_errors import bad_request, build_success, conflict
from lictor.addons.apiserver.writing import is_finished
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_ATTEMPTS = 5
_POLICIES = ("Foreground", "Background", "Orphan")
_POD_GRACE_SECONDS = 30


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """How an object shall be deleted."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    uid: str | None = None
    resource_version: str | None = None


class Deleted(msgspec.Struct, frozen=True):
    """The object as it last was, or as it waits for its end; and what the client hears of it."""

    document: JsonObject
    reply: JsonObject
    warnings: tuple[str, ...] = ()


def read_options(document: Json) -> DeleteOptions:
    """DeleteOptions as a client sends them."""
    if not isinstance(document, dict):
        raise bad_request("DeleteOptions must be an object")
    preconditions = document.get("preconditions") or {}
    try:
        options = msgspec.convert(
            {
                "gracePeriodSeconds": document.get("gracePeriodSeconds"),
                "propagationPolicy": document.get("propagationPolicy"),
                "orphanDependents": document.get("orphanDependents"),
                "uid": preconditions.get("uid"),
                "resourceVersion": preconditions.get("resourceVersion"),
            },
            DeleteOptions,
        )
    except (msgspec.ValidationError, AttributeError) as error:
        raise bad_request(f"DeleteOptions cannot be read: {error}") from error
    _check_options(options)
    return options


def _check_options(options: DeleteOptions) -> None:
    policy = options.propagation_policy
    if policy is None:
        return
    field = "propagationPolicy"
    if options.orphan_dependents is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise refuse_options("DeleteOptions", invalid(field, policy, detail))
    if policy not in _POLICIES:
        raise refuse_options("DeleteOptions", unsupported(field, policy, (*_POLICIES, "nil")))


class Deleter:
    """Takes objects away."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def delete(self, attributes: RequestAttributes, options: DeleteOptions) -> Deleted:
        """Delete an object, or mark it as deleted where someone still holds it."""
        for attempt in range(_ATTEMPTS):
            old = self._context.find(attributes)
            _check_preconditions(attributes.kind, old, options)
            warnings = await self._admit(attributes, old)
            warning = attributes.kind.traits.deletion_warning
            if warning and options.propagation_policy is None and options.orphan_dependents is None:
                warnings = (*warnings, warning)
            try:
                return await self._end(attributes, old, options, warnings)
            except RefusedRequestError as error:
                if attempt == _ATTEMPTS - 1 or error.reason != "Conflict":
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _admit(self, attributes: RequestAttributes, old: JsonObject) -> tuple[str, ...]:
        admission = self._context.admission
        admitted = await admission.mutate(attributes, None, old)
        return (*admitted.warnings, *await admission.validate(attributes, None, old))

    async def _end(
        self,
        attributes: RequestAttributes,
        old: JsonObject,
        options: DeleteOptions,
        warnings: tuple[str, ...],
    ) -> Deleted:
        context, kind = self._context, attributes.kind
        marked = _mark(kind, old, options, self._choose_grace(kind, old, options))
        version = version_of(old)
        if is_finished(kind, marked):
            last = old
            if not attributes.dry_run:
                last = context.store.remove(kind, *key_of(old), expected=version)
            # Of a Pod is shown how long it would have been waited for.
            shown = marked if kind.is_pod else context.show(kind, last)
            if not kind.traits.returned_when_deleted:
                uid = old["metadata"].get("uid") or ""
                reply = build_success(kind, attributes.name, uid)
                await context.store.settle()
                return Deleted(shown, reply, warnings)
        elif attributes.dry_run or marked == old:
            shown = marked
        else:
            stored = context.store.put(kind, context.keep(kind, marked), expected=version)
            shown = context.show(kind, stored)
        await context.store.settle()
        return Deleted(shown, shown, warnings)

    def _choose_grace(self, kind: ServedKind, document: JsonObject, options: DeleteOptions) -> int:
        """How many seconds it may still run. Only Pods on a node run."""
        if not kind.is_pod:
            return 0
        spec = document.get("spec") or {}
        node = spec.get("nodeName")
        nodes = self._context.catalogue.preferred("", "nodes")
        if not node or nodes is None or self._context.store.get(nodes, "", node) is None:
            return 0
        phase = (document.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return 0
        wanted = options.grace_period_seconds
        if wanted is None:
            wanted = spec.get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS)
        return max(0, int(wanted))


def _check_preconditions(kind: ServedKind, old: JsonObject, options: DeleteOptions) -> None:
    metadata = old["metadata"]
    for label, wanted, found, end in (
        ("UID", options.uid, metadata.get("uid"), "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, version_of(old), "modified"),
    ):
        if wanted is not None and wanted != found:
            raise conflict(
                kind,
                metadata["name"],
                f"the {label} in the precondition ({wanted}) does not match the {label} in record "
                f"({found}). The object might have been {end}",
            )


def _mark(kind: ServedKind, old: JsonObject, options: DeleteOptions, grace: int) -> JsonObject:
    """The object, deleted, with the finalizers that its dependents need."""
    metadata = {**old["metadata"]}
    finalizers = _choose_finalizers(kind, metadata.get("finalizers") or [], options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if not is_ending(old):
        until = datetime.now(UTC) + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        if metadata.get("generation"):
            metadata["generation"] += 1
        if not kind.is_namespace:
            metadata["deletionGracePeriodSeconds"] = grace
    elif grace < (metadata.get("deletionGracePeriodSeconds") or 0):
        metadata["deletionGracePeriodSeconds"] = grace
    marked = {**old, "metadata": metadata}
    if kind.is_namespace:
        marked["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return marked


def _choose_finalizers(kind: ServedKind, current: list[str], options: DeleteOptions) -> list[str]:
    policy = options.propagation_policy
    if policy is None and options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if policy is None:
        if ORPHAN in current or FOREGROUND in current:
            return current
        policy = "Orphan" if kind.traits.orphans_dependents else "Background"
    kept = [each for each in current if each not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        return [*kept, ORPHAN]
    return [*kept, FOREGROUND] if policy == "Foreground" else kept
