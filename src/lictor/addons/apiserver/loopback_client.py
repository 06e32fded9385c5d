"""The writing verbs of the API for the server's own controllers: the same path, without HTTP."""

from msgspec.structs import replace

from lictor.addons.apiserver.bodies import decode_object
from lictor.addons.apiserver.context import SYSTEM, ServerContext
from lictor.addons.apiserver.deletion import DeleteOptions, Deleter, read_options
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.patches import PatchKind, compile_patch
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.writing import Applied, ObjectWriter
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject

__all__ = ["SYSTEM", "LoopbackClient"]


class LoopbackClient:
    """Creates, changes and deletes objects as some user, without authorization."""

    def __init__(self, context: ServerContext) -> None:
        self.writer = ObjectWriter(context)
        self.deleter = Deleter(context)

    async def create(
        self, user: ApiUser, kind: ServedKind, document: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        """Create an object; gives it as it is kept."""
        read = decode_object(kind, document)
        where = namespace or read["metadata"].get("namespace") or ""
        name = read["metadata"].get("name") or ""
        attributes = _describe(user, Operation.CREATE, kind, where if kind.namespaced else "", name)
        return (await self.writer.create(attributes, read)).document

    async def update(
        self, user: ApiUser, kind: ServedKind, document: JsonObject, *, subresource: str = ""
    ) -> JsonObject:
        """Replace an object, or its status; gives it as it is kept."""
        read = decode_object(kind, document)
        namespace = read["metadata"].get("namespace") or ""
        name = read["metadata"].get("name") or ""
        attributes = _describe(user, Operation.UPDATE, kind, namespace, name)
        attributes = replace(attributes, subresource=subresource)
        return (await self.writer.update(attributes, read)).document

    async def patch(  # noqa: PLR0913  (what is patched, how, and by whom)
        self,
        user: ApiUser,
        kind: ServedKind,
        name: str,
        patch_kind: str,
        body: Json,
        *,
        namespace: str = "",
        subresource: str = "",
        force: bool = False,
    ) -> JsonObject:
        """Patch an object, or its status, in any of the four ways; gives it as it is kept."""
        attributes = replace(
            _describe(user, Operation.UPDATE, kind, namespace, name),
            verb="patch",
            subresource=subresource,
            options=_name_options("PatchOptions"),
        )
        if patch_kind == PatchKind.APPLY:
            applied = Applied(decode_object(kind, body), force)
            return (await self.writer.apply(attributes, applied)).document
        edit = compile_patch(PatchKind(patch_kind), body)
        return (await self.writer.edit(attributes, edit)).document

    async def delete(
        self,
        user: ApiUser,
        kind: ServedKind,
        name: str,
        *,
        namespace: str = "",
        options: JsonObject | DeleteOptions | None = None,
    ) -> JsonObject:
        """Delete an object; gives it as it last was, or as it waits for its end."""
        read = options if isinstance(options, DeleteOptions) else read_options(options or {})
        attributes = _describe(user, Operation.DELETE, kind, namespace, name)
        shown = {**attributes.options, **(options if isinstance(options, dict) else {})}
        deletion = replace(attributes, options=shown, field_manager="")
        return (await self.deleter.delete(deletion, read)).document


def _describe(
    user: ApiUser, operation: Operation, kind: ServedKind, namespace: str, name: str
) -> RequestAttributes:
    verb = operation.value.lower()
    return RequestAttributes(
        user,
        verb,
        kind,
        namespace,
        name,
        operation=operation,
        options=_name_options(f"{verb.capitalize()}Options"),
        # The last part of a user's name, such as `deployment-controller`.
        field_manager=user.name.rpartition(":")[2],
    )


def _name_options(kind: str) -> JsonObject:
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
