"""Requests about objects: from a call to a reply."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

import msgspec
import orjson

from lictor.addons.apiserver.access.access_reviews import AccessReviews
from lictor.addons.apiserver.bodies import (
    FieldValidation,
    decode_object,
    list_duplicates,
    read_beside,
    read_body,
    refuse_fields,
)
from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.deletion import DeleteOptions, read_options
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.lists import ListQuery, compile_selectors, find_single_name, list_page
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import key_of
from lictor.addons.apiserver.patches import PatchKind, compile_patch, read_patch_kind
from lictor.addons.apiserver.rendering import build_show, render_object, render_page
from lictor.addons.apiserver.request import (
    AcceptedForm,
    ApiUser,
    Parameters,
    RequestAttributes,
    ResourceRoute,
    choose_manager,
    describe_options,
    read_accept,
    read_count,
    read_dry_run,
    read_flag,
    read_parameters,
    read_validation,
    refuse_options,
)
from lictor.addons.apiserver.status_errors import no_such_resource, not_allowed
from lictor.addons.apiserver.subresources import SubresourceHandlers
from lictor.addons.apiserver.watches import Watches, WatchQuery
from lictor.addons.apiserver.writing import Applied, Written
from lictor.core.model.request import Operation
from lictor.core.raw import JsonObject
from lictor.http.messages import HttpRequest, HttpResponse, StreamedResponse

_OPTIONS = {
    "create": ("CreateOptions", Operation.CREATE),
    "update": ("UpdateOptions", Operation.UPDATE),
    "patch": ("PatchOptions", Operation.UPDATE),
    "delete": ("DeleteOptions", Operation.DELETE),
    "deletecollection": ("DeleteOptions", Operation.DELETE),
}
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_OBJECT_VERBS = frozenset(("get", "update", "patch", "delete"))
_LIST_VERBS = frozenset(("list", "watch", "create", "deletecollection"))
# Verbs that work on all namespaces at once.
_SPANNING_VERBS = frozenset(("list", "watch"))


class ResourceRequest(msgspec.Struct, frozen=True):
    """A call, and what was found out about it so far."""

    call: HttpRequest
    route: ResourceRoute
    parameters: Parameters
    form: AcceptedForm
    attributes: RequestAttributes

    @property
    def include(self) -> str:
        """How much of an object a row of a table carries."""
        return self.parameters.get("includeObject") or "Metadata"


class RequestHandlers:
    """Answers requests about objects."""

    def __init__(
        self,
        context: ServerContext,
        api: LoopbackClient,
        watches: Watches,
        subresources: SubresourceHandlers,
        reviews: AccessReviews,
    ) -> None:
        self._context = context
        self._api = api
        self._watches = watches
        self._subresources = subresources
        self._reviews = reviews
        self._verbs: dict[
            str, Callable[[ResourceRequest], Awaitable[HttpResponse | StreamedResponse]]
        ] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def answer(
        self, call: HttpRequest, user: ApiUser, route: ResourceRoute
    ) -> HttpResponse | StreamedResponse:
        """The reply to a call; raises RefusedRequestError."""
        request = _read_request(call, user, route)
        self._authorize(request.attributes)
        _check_verb(request)
        handle = self._subresources.find(request.attributes)
        if handle is not None:
            return _reply_subresource(await handle(request.attributes, call))
        return await self._verbs[request.attributes.verb](request)

    def _authorize(self, attributes: RequestAttributes) -> None:
        if attributes.name and attributes.kind.is_namespace:
            # For authorization, a namespace is in itself.
            attributes = msgspec.structs.replace(attributes, namespace=attributes.name)
        self._context.authorization.check(attributes)

    # --- reading

    async def _get(self, request: ResourceRequest) -> HttpResponse:
        found = self._context.find(request.attributes)
        return _reply(render_object(request.form, request.route.kind, found, request.include))

    async def _list(self, request: ResourceRequest) -> HttpResponse:
        page = list_page(self._context, request.route.kind, _read_query(request))
        return _reply(render_page(request.form, request.route.kind, page, request.include))

    async def _watch(self, request: ResourceRequest) -> StreamedResponse:
        kind, parameters = request.route.kind, request.parameters
        initial = read_flag(parameters, "sendInitialEvents")
        fields = parameters.get("fieldSelector", "")
        show = build_show(request.form, kind, request.include)
        seconds = read_count(parameters, "timeoutSeconds")
        query = WatchQuery(
            namespace=request.route.namespace,
            test=compile_selectors(kind, parameters.get("labelSelector", ""), fields),
            version=parameters.get("resourceVersion", ""),
            bookmarks=bool(read_flag(parameters, "allowWatchBookmarks")),
            initial=initial,
            seconds=float(seconds) if seconds else None,
            style=f"{request.form.form}/{request.form.version}/{request.include}" if show else "",
            show=show,
        )
        return StreamedResponse(self._watches.open(kind, query).pieces())

    # --- writing

    async def _create(self, request: ResourceRequest) -> HttpResponse:
        document, validation = await _read_object(request)
        kind = request.route.kind
        user, namespace = request.attributes.user, request.route.namespace
        answer = self._reviews.answer(kind, user, document, namespace)
        if answer is not None:
            return _reply(answer, HTTPStatus.CREATED)
        attributes = msgspec.structs.replace(
            request.attributes, name=document["metadata"].get("name") or ""
        )
        written = await self._api.writer.create(attributes, document, validation)
        return _reply_written(request, written)

    async def _update(self, request: ResourceRequest) -> HttpResponse:
        document, validation = await _read_object(request)
        written = await self._api.writer.update(request.attributes, document, validation)
        return _reply_written(request, written)

    async def _patch(self, request: ResourceRequest) -> HttpResponse:
        call, writer = request.call, self._api.writer
        patch_kind = read_patch_kind(request.route.kind, call.content_type.decode("latin-1"))
        validation = read_validation(request.parameters, "PatchOptions")
        force = bool(read_flag(request.parameters, "force"))
        _check_patch_options(request.parameters, patch_kind, force=force)
        if patch_kind is PatchKind.APPLY:
            document = decode_object(request.route.kind, await read_body(call))
            written = await writer.apply(request.attributes, Applied(document, force))
        else:
            edit = compile_patch(patch_kind, await read_body(call))
            written = await writer.edit(request.attributes, edit, validation)
        return _reply_written(request, written)

    # --- deleting

    async def _delete(self, request: ResourceRequest) -> HttpResponse:
        attributes, options = await _read_deletion(request)
        deleted = await self._api.deleter.delete(attributes, options)
        return _reply(deleted.reply, warnings=deleted.warnings)

    async def _delete_collection(self, request: ResourceRequest) -> HttpResponse:
        kind = request.route.kind
        attributes, options = await _read_deletion(request)
        page = list_page(self._context, kind, _read_query(request))
        for document in page.items:
            namespace, name = key_of(document)
            one = msgspec.structs.replace(attributes, namespace=namespace, name=name)
            await self._api.deleter.delete(one, options)
            await asyncio.sleep(0)
        return _reply(render_page(request.form, kind, page, request.include))


def _read_request(call: HttpRequest, user: ApiUser, route: ResourceRoute) -> ResourceRequest:
    parameters = read_parameters(call.query)
    verb = _find_verb(call, route, parameters)
    kind, operation = _OPTIONS.get(verb, ("", None))
    agent = call.headers.get(b"user-agent", [b""])[0]
    attributes = RequestAttributes(
        user,
        verb,
        route.kind,
        route.namespace,
        route.name or _find_name(verb, parameters.get("fieldSelector", "")),
        route.subresource,
        operation,
        read_dry_run(parameters, kind) if kind else False,
        describe_options(parameters, kind) if kind else {},
        choose_manager(parameters, agent, kind) if kind else "",
    )
    accept = b",".join(call.headers.get(b"accept", ()))
    return ResourceRequest(call, route, parameters, read_accept(accept), attributes)


def _find_name(verb: str, fields: str) -> str:
    """A selector of one name needs only the rights for that object."""
    return find_single_name(fields) if verb in ("list", "watch", "deletecollection") else ""


def _find_verb(call: HttpRequest, route: ResourceRoute, parameters: Parameters) -> str:
    verb = _VERBS.get(call.method, "")
    if route.name:
        return verb
    if verb == "get":
        return "watch" if read_flag(parameters, "watch") else "list"
    return "deletecollection" if verb == "delete" else verb


def _check_verb(request: ResourceRequest) -> None:
    """Refuse verbs that discovery does not list, and HEAD, which only proxies accept."""
    route, verb = request.route, request.attributes.verb
    verbs = _list_verbs(route)
    if not verbs:
        raise no_such_resource()
    if verb not in verbs or (request.call.method == "HEAD" and route.subresource != "proxy"):
        raise not_allowed()


def _list_verbs(route: ResourceRoute) -> Iterable[str]:
    kind = route.kind
    if route.subresource:
        part = kind.subresources.get(route.subresource)
        return part.verbs if part is not None else ()
    if route.name:
        return _OBJECT_VERBS & {*kind.verbs}
    spans_namespaces = kind.namespaced and not route.namespace
    return (_SPANNING_VERBS if spans_namespaces else _LIST_VERBS) & {*kind.verbs}


def _read_query(request: ResourceRequest) -> ListQuery:
    parameters = request.parameters
    return ListQuery(
        request.route.namespace,
        parameters.get("labelSelector", ""),
        parameters.get("fieldSelector", ""),
        read_count(parameters, "limit") or 0,
        parameters.get("continue", ""),
        parameters.get("resourceVersion", ""),
        parameters.get("resourceVersionMatch", ""),
    )


async def _read_object(request: ResourceRequest) -> tuple[JsonObject, FieldValidation]:
    call, kind = request.call, request.route.kind
    validation = read_validation(request.parameters, str(request.attributes.options["kind"]))
    document = decode_object(kind, await read_body(call))
    if validation is FieldValidation.STRICT:
        detail = [
            f'duplicate field "{name}"' for name in await read_beside(list_duplicates, call.body)
        ]
        if detail:
            raise refuse_fields(kind, detail)
    return document, validation


def _check_patch_options(parameters: Parameters, kind: PatchKind, *, force: bool) -> None:
    if kind is PatchKind.APPLY:
        if not parameters.get("fieldManager"):
            detail = "Required value: is required for apply patch"
            cause = Cause("FieldValueRequired", detail, "fieldManager")
            raise refuse_options("PatchOptions", cause)
    elif force:
        detail = "Forbidden: may not be specified for non-apply patch"
        raise refuse_options("PatchOptions", Cause("FieldValueForbidden", detail, "force"))


async def _read_deletion(request: ResourceRequest) -> tuple[RequestAttributes, DeleteOptions]:
    """Options come in the body, in the query, or not at all."""
    call, parameters = request.call, request.parameters
    sent: JsonObject = {}
    if call.body.strip():
        body = await read_body(call)
        sent = body if isinstance(body, dict) else {}
    else:
        grace = read_count(parameters, "gracePeriodSeconds")
        if grace is not None:
            sent["gracePeriodSeconds"] = grace
        if parameters.get("propagationPolicy"):
            sent["propagationPolicy"] = parameters["propagationPolicy"]
        orphans = read_flag(parameters, "orphanDependents")
        if orphans is not None:
            sent["orphanDependents"] = orphans
    options = read_options(sent)
    attributes = request.attributes
    shown = {**attributes.options, **sent, "kind": "DeleteOptions"}
    shown["apiVersion"] = "meta.k8s.io/v1"
    dry = attributes.dry_run or sent.get("dryRun") == ["All"]
    return msgspec.structs.replace(attributes, options=shown, dry_run=dry), options


def _reply_subresource(answer: Written | HttpResponse) -> HttpResponse:
    if isinstance(answer, HttpResponse):
        return answer
    status = HTTPStatus.CREATED if answer.is_new else HTTPStatus.OK
    return _reply(answer.document, status, answer.warnings)


def _reply_written(request: ResourceRequest, written: Written) -> HttpResponse:
    status = HTTPStatus.CREATED if written.is_new else HTTPStatus.OK
    shown = render_object(request.form, request.route.kind, written.document, request.include)
    return _reply(shown, status, written.warnings)


def _reply(
    document: JsonObject,
    status: HTTPStatus = HTTPStatus.OK,
    warnings: tuple[str, ...] = (),
) -> HttpResponse:
    headers = tuple(write_warnings(warnings))
    return HttpResponse(status, orjson.dumps(document) + b"\n", JSON_TYPE, headers=headers)


JSON_TYPE = b"application/json"


def write_warnings(warnings: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Headers that clients print; each warning once."""
    headers = []
    for text in dict.fromkeys(warnings):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        clean = "".join([each if each.isprintable() else " " for each in quoted])
        headers.append((b"warning", f'299 - "{clean}"'.encode()))
    return headers
