"""Server-side apply: what a manager wants of an object, merged into it, with its owners."""

import msgspec
import orjson

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.ownership.field_sets import (
    FieldSet,
    add_named,
    collect_fields,
    compare_fields,
    exclude,
    has_path,
    intersect,
    list_paths,
    print_path,
    remove_fields,
    share_fields,
    subtract,
    unite,
)
from lictor.addons.apiserver.ownership.managed_fields import (
    APPLY,
    UPDATE,
    Manager,
    Share,
    Shares,
    compare_objects,
    find_conflicts,
    list_entries,
    list_reset_fields,
    make_empty,
    make_manager,
    read_shares,
    record_update,
    strip_server_fields,
    take_from_others,
    write_shares,
)
from lictor.core.errors import EvaluationError, RefusedRequestError
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.patch.apply_configuration import check_form, merge_values
from lictor.core.raw import JsonObject

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Only under this name does kubectl leave client-side apply behind.
_KUBECTL = "kubectl"
_BEFORE = "before-first-apply"
_MAX_ANNOTATIONS = 256 * 1024


def apply_patch(  # noqa: PLR0913 - whose, how and when all belong to one apply
    kind: ServedKind,
    current: JsonObject | None,
    applied: JsonObject,
    manager: str,
    *,
    force: bool = False,
    subresource: str = "",
    now: str = "",
) -> JsonObject:
    """Merge `applied` into `current` (None: create it), with the managedFields that follow.

    Raises RefusedRequestError: 409 with a cause for each field of another manager that would
    change, unless `force`; 400 for what is no object of the kind.
    """
    try:
        _check_applied(kind, applied)
        writer = make_manager(manager, APPLY, subresource, kind)
        return _Apply(kind, current, applied, writer).run(now, force=force)
    except EvaluationError as error:
        # Kubernetes gives no reason here either.
        raise RefusedRequestError(str(error), code=500) from error
    except RecursionError as error:
        message = "the applied object is nested too deeply"
        raise RefusedRequestError(message, code=400, reason="BadRequest") from error


def _check_applied(kind: ServedKind, applied: JsonObject) -> None:
    version, name = applied.get("apiVersion", ""), applied.get("kind", "")
    if (version, name) != (kind.api_version, kind.kind):
        group, _, only = str(version).rpartition("/")
        raise _refuse_request(f"invalid object type: {group}/{only}, Kind={name}")
    if list_entries(applied) is not None:
        raise _refuse_request("metadata.managedFields must be nil")
    faults = sorted(check_form(applied, kind.schema.form, allows_nulls=True))
    if faults:
        place = f"{_name(applied, 'namespace')}/{_name(applied, 'name')}"
        group = f"{kind.group}/{kind.version}"
        listed = faults[0] if len(faults) == 1 else "errors:" + "".join(f"\n  {f}" for f in faults)
        what = f"failed to create typed patch object ({place}; {group}, Kind={kind.kind})"
        raise EvaluationError(f"{what}: {listed}")


def _name(document: JsonObject, field: str) -> str:
    metadata = document.get("metadata")
    return str(metadata.get(field) or "") if isinstance(metadata, dict) else ""


def _refuse_request(message: str) -> RefusedRequestError:
    return RefusedRequestError(message, code=400, reason="BadRequest")


class _Apply:
    """One apply: what is there, what shall be there, and whose it is."""

    def __init__(
        self, kind: ServedKind, current: JsonObject | None, applied: JsonObject, manager: Manager
    ) -> None:
        self._kind = kind
        self._form = kind.schema.form
        self._current = current
        # What is not there yet is compared with an empty object.
        self._live = make_empty(kind) if current is None else write_shares(current, {})
        self._applied = applied
        self._manager = manager
        self._resets = list_reset_fields(kind, manager.subresource)

    def run(self, now: str, *, force: bool) -> JsonObject:
        shares = self._find_shares(now)
        last = shares.get(self._manager)
        claimed = exclude(collect_fields(self._applied, self._form), self._resets)
        time = last.time if last is not None else ""
        shares[self._manager] = Share(claimed, self._kind.api_version, time)
        merged = merge_values(
            {} if self._current is None else self._live, self._applied, self._form
        )
        if last is not None:
            merged = self._prune(merged, shares, last.fields)
        shares = self._settle(merged, shares, force=force)
        if merged != self._live:
            shares = _set_time(shares, self._manager, now)
        return write_shares(self._renew_last_applied(merged), shares)

    def _find_shares(self, now: str) -> Shares:
        if self._current is None:
            return {}
        shares = read_shares(self._current, is_stored=True)
        if shares:
            return shares
        first = make_manager(_BEFORE, UPDATE, self._manager.subresource, self._kind)
        return record_update(self._kind, None, self._live, {}, first, now)

    def _prune(self, merged: JsonObject, shares: Shares, last: FieldSet) -> JsonObject:
        """Remove what this manager no longer applies and no other manager owns."""
        form = self._form
        owned: FieldSet = {}
        for share in shares.values():
            owned = unite(owned, share.fields)
        if not subtract(last, owned):
            return merged
        last = add_named(last, form)
        present = self._list_present(merged)
        pruned = self._list_present(remove_fields(merged, last, form))
        # With what others own, and then with what was never this manager's.
        pruned = self._list_present(
            remove_fields(merged, subtract(present, unite(pruned, add_named(owned, form))), form)
        )
        return remove_fields(merged, intersect(subtract(present, pruned), last), form)

    def _list_present(self, document: JsonObject) -> FieldSet:
        return add_named(collect_fields(document, self._form), self._form)

    def _settle(self, merged: JsonObject, shares: Shares, *, force: bool) -> Shares:
        """Take what changes from its owners, or refuse to."""
        changed = compare_objects(self._live, merged, self._kind, self._resets)
        conflicts = find_conflicts(shares, self._manager, changed)
        if conflicts and not force:
            self._refuse_conflicts(conflicts)
        shares = take_from_others(shares, self._manager, changed, conflicts)
        own = shares.pop(self._manager)
        if fields := strip_server_fields(own.fields):
            shares[self._manager] = msgspec.structs.replace(own, fields=share_fields(fields))
        return shares

    def _refuse_conflicts(self, conflicts: dict[Manager, FieldSet]) -> None:
        found = [
            (manager, path)
            for manager, fields in sorted(conflicts.items())
            for path in list_paths(fields)
        ]
        if self._manager.name == _KUBECTL:
            allowed = _read_last_applied_fields(self._kind, self._live)
            found = [(manager, path) for manager, path in found if not has_path(allowed, path)]
        if found:
            raise _describe_conflicts(found)

    def _renew_last_applied(self, merged: JsonObject) -> JsonObject:
        """The annotation of client-side apply is kept true, for those who go back to it."""
        annotations = _read_annotations(merged)
        if self._manager.name != _KUBECTL or not annotations.get(LAST_APPLIED):
            return merged
        annotations = {**annotations, LAST_APPLIED: _write_last_applied(self._applied)}
        if sum(len(key) + len(str(value)) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
            del annotations[LAST_APPLIED]
        return {**merged, "metadata": {**merged["metadata"], "annotations": annotations}}


def _set_time(shares: Shares, manager: Manager, now: str) -> Shares:
    own = shares.get(manager)
    return shares if own is None else {**shares, manager: msgspec.structs.replace(own, time=now)}


def _describe_conflicts(found: list[tuple[Manager, tuple[str, ...]]]) -> RefusedRequestError:
    named = [(_print_manager(manager), print_path(path)) for manager, path in found]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {name}", "field": path}
        for name, path in named
    ]
    if len(named) == 1:
        message = f"Apply failed with 1 conflict: conflict with {named[0][0]}: {named[0][1]}"
    else:
        lines = []
        for name in dict.fromkeys(name for name, _ in named):
            lines.append(f"conflicts with {name}:")
            lines += [f"- {path}" for owner, path in named if owner == name]
        message = f"Apply failed with {len(named)} conflicts: " + "\n".join(lines)
    return RefusedRequestError(message, code=409, reason="Conflict", details={"causes": causes})


def _print_manager(manager: Manager) -> str:
    text = dump_go_json(manager.name)
    if manager.subresource:
        text += f" with subresource {dump_go_json(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _write_last_applied(applied: JsonObject) -> str:
    annotations = _read_annotations(applied)
    if LAST_APPLIED in annotations:
        kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        applied = {**applied, "metadata": {**applied["metadata"], "annotations": kept}}
    return dump_go_json(applied) + "\n"


def _read_annotations(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def _read_last_applied_fields(kind: ServedKind, live: JsonObject) -> FieldSet:
    """What client-side apply wrote and is still as it wrote it: its user may take it over."""
    try:
        last = orjson.loads(_read_annotations(live).get(LAST_APPLIED) or "null")
    except orjson.JSONDecodeError:
        return {}
    form = kind.schema.form
    if not isinstance(last, dict) or last.get("apiVersion") != kind.api_version:
        return {}
    if check_form(last, form, allows_nulls=True):
        return {}
    changed = compare_fields(last, live, form)
    fields = collect_fields(last, form)
    for part in changed:
        fields = subtract(fields, part)
    return fields
