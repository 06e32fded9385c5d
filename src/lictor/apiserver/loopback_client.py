"""The verbs of the API for those who live in the server itself: the same way, without HTTP."""

from lictor.apiserver.bodies import decode_object
from lictor.apiserver.context import SYSTEM, ServerContext
from lictor.apiserver.deletion import DeleteOptions, Deleter, read_options
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.lists import ListQuery, list_page
from lictor.apiserver.patches import PatchKind, compile_patch
from lictor.apiserver.request import ApiUser, RequestAttributes
from lictor.apiserver.writing import Applied, ObjectWriter
from lictor.model.request import Operation
from lictor.raw import Json, JsonObject

__all__ = ["SYSTEM", "LoopbackClient"]


class LoopbackClient:
    """Creates, reads, changes and deletes objects as some user; nobody asks whether they may."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.writer = ObjectWriter(context)
        self.deleter = Deleter(context)

    async def create(
        self,
        user: ApiUser,
        kind: ServedKind,
        document: JsonObject,
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> JsonObject:
        """Create an object; gives it as it is kept."""
        read = decode_object(kind, document)
        where = namespace or (read["metadata"].get("namespace") or "")
        attributes = RequestAttributes(
            user,
            "create",
            kind,
            where if kind.namespaced else "",
            read["metadata"].get("name") or "",
            operation=Operation.CREATE,
            dry_run=dry_run,
            options=_name_options("CreateOptions", dry_run=dry_run),
            field_manager=_manager(user),
        )
        return (await self.writer.create(attributes, read)).document

    async def update(
        self,
        user: ApiUser,
        kind: ServedKind,
        document: JsonObject,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> JsonObject:
        """Replace an object, or its status; gives it as it is kept."""
        read = decode_object(kind, document)
        attributes = RequestAttributes(
            user,
            "update",
            kind,
            read["metadata"].get("namespace") or "",
            read["metadata"].get("name") or "",
            subresource,
            Operation.UPDATE,
            dry_run,
            _name_options("UpdateOptions", dry_run=dry_run),
            _manager(user),
        )
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
        dry_run: bool = False,
        force: bool = False,
    ) -> JsonObject:
        """Patch an object, or its status, in any of the four ways; gives it as it is kept."""
        attributes = RequestAttributes(
            user,
            "patch",
            kind,
            namespace,
            name,
            subresource,
            Operation.UPDATE,
            dry_run,
            _name_options("PatchOptions", dry_run=dry_run),
            _manager(user),
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
        shown = options if isinstance(options, dict) else {}
        attributes = RequestAttributes(
            user,
            "delete",
            kind,
            namespace,
            name,
            operation=Operation.DELETE,
            options={**_name_options("DeleteOptions", dry_run=False), **shown},
        )
        return (await self.deleter.delete(attributes, read)).document

    async def get(self, kind: ServedKind, name: str, *, namespace: str = "") -> JsonObject:
        """One object; raises RefusedRequestError 404."""
        return self._context.find(RequestAttributes(SYSTEM, "get", kind, namespace, name))

    async def list(
        self, kind: ServedKind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[JsonObject]:
        """All objects of a kind that fit."""
        return list_page(self._context, kind, ListQuery(namespace, labels, fields)).items


def _name_options(kind: str, *, dry_run: bool) -> JsonObject:
    options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def _manager(user: ApiUser) -> str:
    """The last part of a user's name, such as `deployment-controller`."""
    return user.name.rpartition(":")[2]
