"""Creating and changing objects: from what a client sent to what is kept."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lictor.addons.apiserver.bodies import (
    FieldValidation,
    check_metadata,
    read_fields,
    read_patched,
)
from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.objects import (
    begin_object,
    carry_over,
    check_change,
    check_identity,
    count_generation,
    is_unchanged,
    key_of,
    name_of,
    read_clock,
    set_creation_fields,
    version_of,
)
from lictor.addons.apiserver.ownership.apply import apply_patch
from lictor.addons.apiserver.ownership.managed_fields import track
from lictor.addons.apiserver.request import RequestAttributes
from lictor.addons.apiserver.status_errors import (
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    versionless,
)
from lictor.core.errors import RefusedRequestError
from lictor.core.model.request import Operation
from lictor.core.raw import JsonObject

# How often a change is tried again on an object that someone else changed meanwhile.
_ATTEMPTS = 5
_NAME_ATTEMPTS = 8
_NAMELESS = Cause(
    "FieldValueRequired", "Required value: name or generateName is required", "metadata.name"
)


class Written(msgspec.Struct, frozen=True):
    """The object as it is now, and what its author should hear."""

    document: JsonObject
    warnings: tuple[str, ...] = ()
    is_new: bool = False


class Applied(msgspec.Struct, frozen=True):
    """What a manager wants of an object."""

    document: JsonObject
    force: bool = False


# From the object as it is to the object as someone wants it.
ObjectEdit: TypeAlias = Callable[[JsonObject], JsonObject]


class ObjectWriter:
    """The way of a write through defaults, admission and checks into the store."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def create(
        self,
        attributes: RequestAttributes,
        document: JsonObject,
        validation: FieldValidation = FieldValidation.WARN,
    ) -> Written:
        """Create an object."""
        warnings: list[str] = []
        document = read_fields(attributes.kind, document, validation, warnings)
        return await self._create(attributes, document, warnings)

    async def update(
        self,
        attributes: RequestAttributes,
        document: JsonObject,
        validation: FieldValidation = FieldValidation.WARN,
    ) -> Written:
        """Replace an object; some kinds are created where they are not there."""
        warnings: list[str] = []
        kind = attributes.kind
        document = read_fields(kind, document, validation, warnings)
        _check_identity(attributes, document)
        if self._is_created_by_update(attributes):
            return await self._create_by_update(attributes, document, warnings)
        if not version_of(document) and kind.traits.needs_version:
            raise versionless(kind, attributes.name)
        uid = document["metadata"].get("uid")

        def replace(current: JsonObject) -> JsonObject:
            if uid and uid != current["metadata"].get("uid"):
                detail = f"UID in precondition: {uid}, UID in object meta: "
                found = current["metadata"].get("uid")
                raise conflict(kind, attributes.name, f"Precondition failed: {detail}{found}")
            return document

        return await self._change(attributes, replace, warnings)

    def _is_created_by_update(self, attributes: RequestAttributes) -> bool:
        """Is it missing, and of a kind that is created then? Subresources create nothing."""
        kind = attributes.kind
        if attributes.subresource or not kind.traits.created_by_update:
            return False
        return self._context.store.get(kind, attributes.namespace, attributes.name) is None

    async def _create_by_update(
        self, attributes: RequestAttributes, document: JsonObject, warnings: list[str]
    ) -> Written:
        if uid := document["metadata"].get("uid"):
            detail = f"UID in precondition: {uid}, UID in object meta: "
            raise conflict(attributes.kind, attributes.name, f"Precondition failed: {detail}")
        # Only the right to update was checked so far.
        creation = _as_create(attributes)
        self._context.authorization.check(creation)
        return await self._create(creation, document, warnings)

    async def edit(
        self,
        attributes: RequestAttributes,
        edit: ObjectEdit,
        validation: FieldValidation = FieldValidation.WARN,
    ) -> Written:
        """Change an object by a function of what it is, such as a patch."""
        warnings: list[str] = []

        def edit_and_read(current: JsonObject) -> JsonObject:
            warnings.clear()
            edited = edit(current)
            return read_patched(attributes.kind, edited, validation, warnings)

        return await self._change(attributes, edit_and_read, warnings)

    async def apply(self, attributes: RequestAttributes, applied: Applied) -> Written:
        """Server-side apply: change an object, or create it."""
        kind = attributes.kind
        if self._context.store.get(kind, attributes.namespace, attributes.name) is None:
            try:
                return await self._create_applied(attributes, applied)
            except RefusedRequestError as error:
                # Another request created it meanwhile: this one changes it, as in Kubernetes.
                if error.reason != "AlreadyExists":
                    raise

        def merge(current: JsonObject) -> JsonObject:
            return self._merge(attributes, current, applied)

        return await self._change(attributes, merge, [], is_apply=True)

    async def _create_applied(self, attributes: RequestAttributes, applied: Applied) -> Written:
        if attributes.subresource:
            raise not_found(attributes.kind, attributes.name)
        if not name_of(applied.document):
            raise bad_request(
                f"the name of the object ({attributes.name} based on URL) was undeterminable: "
                "name must be provided"
            )
        uid = applied.document["metadata"].get("uid")
        if uid:
            detail = f"the provided object specified uid {uid}, and no existing object was found"
            raise conflict(attributes.kind, attributes.name, f"uid mismatch: {detail}")
        creation = _as_create(attributes)
        self._context.authorization.check(creation)
        document = self._merge(attributes, None, applied)
        return await self._create(creation, document, [], is_apply=True)

    def _merge(
        self, attributes: RequestAttributes, current: JsonObject | None, applied: Applied
    ) -> JsonObject:
        merged = apply_patch(
            attributes.kind,
            current,
            applied.document,
            attributes.field_manager,
            force=applied.force,
            subresource=attributes.subresource,
            now=read_clock(),
        )
        check_metadata(attributes.kind, merged)
        _check_identity(attributes, merged)
        return merged

    # --- creation

    async def _create(
        self,
        attributes: RequestAttributes,
        document: JsonObject,
        warnings: list[str],
        *,
        is_apply: bool = False,
    ) -> Written:
        kind = attributes.kind
        document = begin_object(kind, document, attributes.namespace)
        document = kind.schema.apply_defaults(document)
        admitted = await self._context.admission.mutate(attributes, document, None)
        warnings += admitted.warnings
        if admitted.document is not None and admitted.document is not document:
            document = begin_object(kind, _reread(kind, admitted.document), attributes.namespace)
            document = kind.schema.apply_defaults(document)
        for attempt in range(_NAME_ATTEMPTS):
            created = set_creation_fields(kind, document, read_clock())
            if kind.traits.set_uid_defaults is not None:
                created = kind.traits.set_uid_defaults(created)
            try:
                return await self._finish_creation(attributes, created, warnings, is_apply=is_apply)
            except RefusedRequestError as error:
                is_last = attempt == _NAME_ATTEMPTS - 1
                if is_last or name_of(document) or error.reason != "AlreadyExists":
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _finish_creation(
        self,
        attributes: RequestAttributes,
        document: JsonObject,
        warnings: list[str],
        *,
        is_apply: bool,
    ) -> Written:
        context, kind = self._context, attributes.kind
        causes = kind.schema.validate(document, None)
        if not name_of(document) and not causes:
            causes = [_NAMELESS]
        if causes:
            raise invalid(kind, name_of(document), causes)
        heard = await context.admission.validate(attributes, document, None)
        if not is_apply:
            now = document["metadata"]["creationTimestamp"]
            document = track(kind, None, document, attributes.field_manager, now, "")
        detail = (*warnings, *heard)
        if attributes.dry_run:
            self._check_free(kind, document)
            return Written(document, detail, is_new=True)
        stored = context.store.put(kind, context.keep(kind, document), expected="")
        await context.store.settle()
        return Written(context.show(kind, stored), detail, is_new=True)

    def _check_free(self, kind: ServedKind, document: JsonObject) -> None:
        namespace = document["metadata"].get("namespace") or ""
        if self._context.store.get(kind, namespace, name_of(document)) is not None:
            raise already_exists(kind, name_of(document))

    # --- change

    async def _change(
        self,
        attributes: RequestAttributes,
        edit: ObjectEdit,
        warnings: list[str],
        *,
        is_apply: bool = False,
    ) -> Written:
        for attempt in range(_ATTEMPTS):
            old = self._context.find(attributes)
            new = edit(old)
            wanted = version_of(new)
            if wanted and wanted != version_of(old):
                raise conflict(attributes.kind, attributes.name)
            _check_identity(attributes, new)
            try:
                return await self._replace(attributes, old, new, warnings, is_apply=is_apply)
            except RefusedRequestError as error:
                is_last = attempt == _ATTEMPTS - 1
                if is_last or not _is_race(self._context, attributes, old, error):
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _replace(
        self,
        attributes: RequestAttributes,
        old: JsonObject,
        new: JsonObject,
        warnings: list[str],
        *,
        is_apply: bool,
    ) -> Written:
        kind, part = attributes.kind, attributes.subresource
        causes = check_identity(old, new)
        if causes:
            raise invalid(kind, attributes.name, causes)
        new = kind.schema.apply_defaults(carry_over(kind, old, new, part))
        admitted = await self._context.admission.mutate(attributes, new, old)
        if admitted.document is not None and admitted.document is not new:
            changed = carry_over(kind, old, _reread(kind, admitted.document), part)
            new = kind.schema.apply_defaults(changed)
        new = count_generation(kind, old, new)
        causes = [*check_change(old, new), *kind.schema.validate(new, old, part)]
        if causes:
            raise invalid(kind, attributes.name, causes)
        heard = await self._context.admission.validate(attributes, new, old)
        detail = (*warnings, *admitted.warnings, *heard)
        return Written(await self.keep(attributes, old, new, is_apply=is_apply), detail)

    async def keep(
        self,
        attributes: RequestAttributes,
        old: JsonObject,
        new: JsonObject,
        *,
        is_apply: bool = False,
    ) -> JsonObject:
        """Store a checked object with its field managers, unless nothing changes."""
        context, kind = self._context, attributes.kind
        if is_unchanged(old, new, with_managers=is_apply or _sends_managers(old, new)):
            # It may be as it is by a change that is not written yet.
            await context.store.settle()
            return old
        if not is_apply:
            manager, part = attributes.field_manager, attributes.subresource
            new = track(kind, old, new, manager, read_clock(), part)
        if attributes.dry_run:
            return new
        expected = version_of(old)
        if is_finished(kind, new):
            # The last of those who wanted to see it go has let go.
            context.store.remove(kind, *key_of(new), expected=expected)
            stored = new
        else:
            stored = context.store.put(kind, context.keep(kind, new), expected=expected)
        await context.store.settle()
        return context.show(kind, stored)


def is_finished(kind: ServedKind, document: JsonObject) -> bool:
    """Is it deleted, without finalizers and grace period?"""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    if kind.is_namespace:
        return not (document.get("spec") or {}).get("finalizers")
    return True


def _sends_managers(old: JsonObject, new: JsonObject) -> bool:
    """Does the client change managedFields?"""
    sent = new["metadata"].get("managedFields")
    return bool(sent != old["metadata"].get("managedFields") and sent is not None)


def _reread(kind: ServedKind, document: JsonObject) -> JsonObject:
    """What a webhook made of an object: it may have put anything into it."""
    check_metadata(kind, document)
    # Built-in objects are pruned whenever they are completed, which is next.
    if not kind.is_custom:
        return document
    return read_fields(kind, document, FieldValidation.IGNORE, [])


def _check_identity(attributes: RequestAttributes, document: JsonObject) -> None:
    name = name_of(document)
    if name != attributes.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL "
            f"({attributes.name})"
        )
    namespace = document["metadata"].get("namespace") or ""
    if attributes.namespace and namespace and namespace != attributes.namespace:
        raise bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the "
            f"request ({attributes.namespace})"
        )


def _is_race(
    context: ServerContext,
    attributes: RequestAttributes,
    old: JsonObject,
    error: RefusedRequestError,
) -> bool:
    """Was the change refused only since someone else was faster?"""
    if error.reason != "Conflict":
        return False
    current = context.store.get(attributes.kind, attributes.namespace, attributes.name)
    return current is not None and version_of(current) != version_of(old)


def _as_create(attributes: RequestAttributes) -> RequestAttributes:
    options = {**attributes.options, "kind": "CreateOptions"}
    options.pop("force", None)
    return msgspec.structs.replace(
        attributes, verb="create", operation=Operation.CREATE, options=options
    )
