"""Reading and changing how many replicas an object shall have, through its Scale."""

from http import HTTPStatus

from lictor.apiserver.attributes import RequestAttributes
from lictor.apiserver.bodies import read_document, read_json
from lictor.apiserver.context import ServerContext
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.scale import read_scale, write_scale
from lictor.apiserver.objects import count_generation, is_unchanged, read_clock, version_of
from lictor.apiserver.ownership.managed_fields import track
from lictor.apiserver.patches import ObjectEdit, PatchKind, compile_patch, read_patch_kind
from lictor.apiserver.status_errors import bad_request, conflict, invalid, not_allowed
from lictor.apiserver.writing import Written
from lictor.errors import RefusedRequestError
from lictor.http import Call
from lictor.raw import Json, JsonObject

_ATTEMPTS = 5


class Scaling:
    """The subresource `scale` of all kinds that have it."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def answer(self, attributes: RequestAttributes, call: Call) -> Written:
        """The Scale as it is now."""
        if call.method == "GET":
            return Written(read_scale(attributes.kind, self._context.find(attributes)))
        edit = _read_edit(attributes.kind, call)
        for attempt in range(_ATTEMPTS):
            try:
                return await self._change(attributes, edit)
            except RefusedRequestError as error:
                is_last = attempt == _ATTEMPTS - 1
                if is_last or error.code != HTTPStatus.CONFLICT or call.method == "PUT":
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _change(self, attributes: RequestAttributes, edit: ObjectEdit) -> Written:
        context, kind = self._context, attributes.kind
        old = context.find(attributes)
        before = read_scale(kind, old)
        wanted = edit(before)
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != version_of(old):
            raise conflict(kind, attributes.name)
        admitted = await context.admission.mutate(attributes, wanted, before)
        after = wanted if admitted.document is None else admitted.document
        new = count_generation(kind, old, write_scale(kind, old, after))
        causes = kind.shape.check(new, old)
        if causes:
            raise invalid(kind, attributes.name, causes)
        heard = await context.admission.validate(attributes, after, before)
        stored = await self._keep(attributes, old, new)
        return Written(read_scale(kind, stored), (*admitted.warnings, *heard))

    async def _keep(
        self, attributes: RequestAttributes, old: JsonObject, new: JsonObject
    ) -> JsonObject:
        context, kind = self._context, attributes.kind
        if is_unchanged(old, new, with_managers=False):
            return old
        new = track(kind, old, new, attributes.field_manager, read_clock(), "scale")
        if attributes.dry_run:
            return new
        stored = context.store.put(kind, context.keep(kind, new), expected=version_of(old))
        await context.store.settle()
        return context.show(kind, stored)


def _read_edit(kind: ServedKind, call: Call) -> ObjectEdit:
    if call.method == "PUT":
        sent = _require(read_document(call.body, call.content_type))
        return lambda _: sent
    if call.method != "PATCH":
        raise not_allowed()
    patch_kind = read_patch_kind(kind, call.content_type.decode("latin-1"))
    if patch_kind is PatchKind.APPLY:
        raise bad_request("a Scale cannot be applied, only replaced and patched")
    patch = compile_patch(patch_kind, read_json(call.body))
    return lambda before: _require(patch(before))


def _require(document: Json) -> JsonObject:
    if not isinstance(document, dict) or not isinstance(document.get("metadata") or {}, dict):
        raise bad_request("a Scale must be an object")
    return document
