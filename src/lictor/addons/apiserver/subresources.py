"""Subresources that are more than a part of their object: tokens, evictions, logs and the like."""

from collections.abc import Awaitable, Callable
from functools import cache
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

from lictor.addons.apiserver.bodies import decode_object, read_body
from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.deletion import read_options
from lictor.addons.apiserver.field_errors import INVALID
from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import BuiltinSchema
from lictor.addons.apiserver.kinds.custom_kind import CustomSchema
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import count_generation, version_of
from lictor.addons.apiserver.patches import ObjectEdit, PatchKind, compile_patch, read_patch_kind
from lictor.addons.apiserver.request import RequestAttributes
from lictor.addons.apiserver.resources.registry import find_resource
from lictor.addons.apiserver.service_account_tokens import TokenRequests
from lictor.addons.apiserver.status_errors import bad_request, conflict, invalid
from lictor.addons.apiserver.table_columns import format_labels, format_selector
from lictor.addons.apiserver.writing import ObjectWriter, Written
from lictor.core.errors import RefusedRequestError
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject
from lictor.http.messages import HttpRequest, HttpResponse

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_USUAL = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def read_scale(kind: ServedKind, document: JsonObject) -> JsonObject:
    """The Scale of an object."""
    paths = _find_paths(kind)
    metadata = read_object(document, "metadata")
    status: JsonObject = {"replicas": _read_number(document, paths["statusReplicasPath"])}
    selector = _read_selector(kind, document, paths)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in _SHOWN if field in metadata},
        "spec": {"replicas": _read_number(document, paths["specReplicasPath"])},
        "status": status,
    }


def write_scale(kind: ServedKind, document: JsonObject, scale: JsonObject) -> JsonObject:
    """The object with as many replicas as its Scale wants; raises RefusedRequestError."""
    wanted = read_object(scale, "spec").get("replicas", 0)
    path = _find_paths(kind)["specReplicasPath"]
    if wanted < 0:
        raise _refuse(kind, document, path, wanted)
    return _write(document, _split(path), wanted)


def _find_paths(kind: ServedKind) -> JsonObject:
    return kind.schema.scale if isinstance(kind.schema, CustomSchema) else _USUAL


def _split(path: str) -> list[str]:
    return path.lstrip(".").split(".")


def _read_number(document: JsonObject, path: str) -> int:
    found = _read(document, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _read(document: JsonObject, path: str) -> Json:
    *holders, last = _split(path)
    holder = document
    for field in holders:
        holder = read_object(holder, field)
    return holder.get(last)


def _write(holder: JsonObject, fields: list[str], value: int) -> JsonObject:
    first, *rest = fields
    inner = _write(read_object(holder, first), rest, value) if rest else value
    return {**holder, first: inner}


def _read_selector(kind: ServedKind, document: JsonObject, paths: JsonObject) -> str:
    if kind.is_custom:
        path = read_text(paths, "labelSelectorPath")
        found = _read(document, path) if path else None
        return found if isinstance(found, str) else ""
    selector = read_object(document, "spec").get("selector")
    if kind.kind == "ReplicationController":
        return format_labels(selector or {}, "")
    return format_selector(selector, "")


def _refuse(kind: ServedKind, document: JsonObject, path: str, wanted: int) -> RefusedRequestError:
    name = read_text(read_object(document, "metadata"), "name")
    group, detail = kind.group, kind.kind
    field, why = path, "should be a non-negative integer"
    if not kind.is_custom:
        group, detail, field = "autoscaling", "Scale", "spec.replicas"
        why = "must be greater than or equal to 0"
    message = f"Invalid value: {wanted}: {why}"
    cause = {"reason": INVALID, "message": message, "field": field}
    return RefusedRequestError(
        f'{detail}.{group} "{name}" is invalid: {field}: {message}',
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        details={"name": name, "group": group, "kind": detail, "causes": [cause]},
    )


_ATTEMPTS = 5


class Scaling:
    """The subresource `scale` of all kinds that have it."""

    def __init__(self, context: ServerContext, writer: ObjectWriter) -> None:
        self._context = context
        self._writer = writer

    async def answer(self, attributes: RequestAttributes, call: HttpRequest) -> Written:
        """The Scale as it is now."""
        if call.method == "GET":
            return Written(read_scale(attributes.kind, self._context.find(attributes)))
        edit = await _read_edit(attributes, call)
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
        _check_preconditions(attributes, wanted, old)
        admitted = await context.admission.mutate(attributes, wanted, before)
        after = _decode(attributes, wanted if admitted.document is None else admitted.document)
        new = count_generation(kind, old, write_scale(kind, old, after))
        causes = kind.schema.validate(new, old)
        if causes:
            raise invalid(kind, attributes.name, causes)
        heard = await context.admission.validate(attributes, after, before)
        stored = await self._writer.keep(attributes, old, new)
        return Written(read_scale(kind, stored), (*admitted.warnings, *heard))


async def _read_edit(attributes: RequestAttributes, call: HttpRequest) -> ObjectEdit:
    if call.method == "PUT":
        sent = _decode(attributes, await read_body(call))
        return lambda _: sent
    patch_kind = read_patch_kind(attributes.kind, call.content_type.decode("latin-1"))
    if patch_kind is PatchKind.APPLY:
        raise bad_request("a Scale cannot be applied, only replaced and patched")
    patch = compile_patch(patch_kind, await read_body(call))
    return lambda before: _decode(attributes, patch(before))


def _check_preconditions(attributes: RequestAttributes, sent: JsonObject, old: JsonObject) -> None:
    """What is sent to a subresource may be meant for one version of one object."""
    metadata = sent["metadata"]
    for field in ("uid", "resourceVersion"):
        if metadata.get(field) and metadata[field] != old["metadata"].get(field):
            raise conflict(attributes.kind, attributes.name)


def _decode(attributes: RequestAttributes, document: Json) -> JsonObject:
    """What is sent to a subresource, as an object of the kind that belongs there."""
    part = attributes.kind.subresources.get(attributes.subresource)
    api_version, name = (part and part.kind) or (attributes.kind.api_version, attributes.kind.kind)
    if isinstance(document, dict) and document.get("apiVersion") == _OLD_EVICTIONS:
        document = {**document, "apiVersion": api_version}
    kind = _describe_kind(api_version, name)
    return kind.schema.prune(decode_object(kind, document))


@cache
def _describe_kind(api_version: str, name: str) -> ServedKind:
    group, _, version = api_version.rpartition("/")
    schema = BuiltinSchema(api_version, find_resource(group, name))
    return ServedKind(group, version, name, "", "", namespaced=True, schema=schema)


_OLD_EVICTIONS = "policy/v1beta1"
# What is sent to a subresource that opens a connection, and its parameters that may come often.
_CONNECTIONS = {
    "exec": "ExecOptions",
    "attach": "AttachOptions",
    "portforward": "PortForwardOptions",
    "proxy": "ProxyOptions",
}
_LISTS = frozenset(("command", "ports"))
_FLAGS = frozenset(("stdin", "stdout", "stderr", "tty"))
SubresourceHandler = Callable[[RequestAttributes, HttpRequest], Awaitable[Written | HttpResponse]]


class SubresourceHandlers:
    """Answers requests to subresources that are no part of their object."""

    def __init__(self, context: ServerContext, api: LoopbackClient, tokens: TokenRequests) -> None:
        self._context = context
        self._api = api
        self._tokens = tokens
        self._scaling = Scaling(context, api.writer)
        self._answers: dict[tuple[str, str], SubresourceHandler] = {
            ("serviceaccounts", "token"): self._issue_token,
            ("pods", "eviction"): self._evict,
            ("pods", "binding"): self._bind,
            ("bindings", ""): self._bind,
            ("pods", "log"): self._show_log,
            **{("pods", name): self._connect for name in _CONNECTIONS},
            ("services", "proxy"): self._connect,
            ("nodes", "proxy"): self._connect,
        }

    def find(self, attributes: RequestAttributes) -> SubresourceHandler | None:
        """Who answers; None where the subresource is a part of its object."""
        if attributes.subresource == "scale":
            return self._scaling.answer
        if attributes.kind.group:
            return None
        return self._answers.get((attributes.kind.plural, attributes.subresource))

    async def _issue_token(self, attributes: RequestAttributes, call: HttpRequest) -> Written:
        request = await _read_sent(attributes, call)
        heard = await self._admit(attributes, request)
        kind, namespace, name = attributes.kind, attributes.namespace, attributes.name
        return Written(self._tokens.issue(kind, namespace, name, request), heard, is_new=True)

    async def _evict(self, attributes: RequestAttributes, call: HttpRequest) -> Written:
        eviction = await _read_sent(attributes, call)
        self._context.find(attributes)
        heard = await self._admit(attributes, eviction)
        deletion = msgspec.structs.replace(
            attributes, verb="delete", subresource="", operation=Operation.DELETE
        )
        sent = read_object(eviction, "deleteOptions")
        dry = attributes.dry_run or sent.get("dryRun") == ["All"]
        deletion = msgspec.structs.replace(deletion, dry_run=dry)
        deleted = await self._api.deleter.delete(deletion, read_options(sent))
        return _succeed((*heard, *deleted.warnings))

    async def _bind(self, attributes: RequestAttributes, call: HttpRequest) -> Written:
        binding = await _read_sent(attributes, call)
        target = read_object(binding, "target")
        node, name = read_text(target, "name"), binding["metadata"]["name"]
        if read_text(target, "kind") not in ("", "Node") or not node:
            raise bad_request("a binding needs the name of a node in target.name")
        heard = await self._admit(attributes, binding)
        context = self._context
        pods = context.catalogue.find("", "v1", "pods") or attributes.kind
        attributes = msgspec.structs.replace(attributes, kind=pods, name=name)
        pod = context.find(attributes)
        _check_preconditions(attributes, binding, pod)
        bound = _place(pod, node, read_object(binding["metadata"], "annotations"))
        if not attributes.dry_run:
            context.store.put(pods, bound, expected=version_of(pod))
            await context.store.settle()
        return _succeed(heard)

    async def _show_log(self, attributes: RequestAttributes, call: HttpRequest) -> HttpResponse:
        """No container runs here, so that the log is empty."""
        del call
        self._context.find(attributes)
        return HttpResponse(HTTPStatus.OK, b"")

    async def _connect(self, attributes: RequestAttributes, call: HttpRequest) -> Written:
        self._context.find(attributes)
        connection = msgspec.structs.replace(attributes, operation=Operation.CONNECT, options={})
        await self._admit(connection, _describe_connection(attributes, call))
        if attributes.kind.plural == "pods":
            raise bad_request(f"pod {attributes.name} does not have a host assigned")
        raise RefusedRequestError(
            f'nothing runs behind {attributes.kind.plural} "{attributes.name}"',
            code=HTTPStatus.SERVICE_UNAVAILABLE,
            reason="ServiceUnavailable",
        )

    async def _admit(self, attributes: RequestAttributes, document: JsonObject) -> tuple[str, ...]:
        """Run admission; the warnings."""
        admission = self._context.admission
        admitted = await admission.mutate(attributes, document, None)
        heard = await admission.validate(attributes, admitted.document or document, None)
        return (*admitted.warnings, *heard)


async def _read_sent(attributes: RequestAttributes, call: HttpRequest) -> JsonObject:
    """What is sent to a subresource that creates something; it is about its object."""
    sent = _decode(attributes, await read_body(call))
    name = sent["metadata"].get("name") or attributes.name
    if attributes.name and name != attributes.name:
        raise bad_request(f"name in URL does not match name in {sent['kind']} object")
    return {**sent, "metadata": {**sent["metadata"], "name": name}}


def _place(pod: JsonObject, node: str, annotations: JsonObject) -> JsonObject:
    """The Pod on a node; raises RefusedRequestError where it cannot go there."""
    metadata, spec, why = pod["metadata"], read_object(pod, "spec"), ""
    name = metadata["name"]
    if metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif held := read_text(spec, "nodeName"):
        why = f'pod {name} is already assigned to node "{held}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise RefusedRequestError(
            f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
            code=HTTPStatus.CONFLICT,
            reason="Conflict",
            details={"name": name, "kind": "pods/binding"},
        )
    if annotations:
        merged = {**read_object(metadata, "annotations"), **annotations}
        metadata = {**metadata, "annotations": merged}
    return {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}}


def _describe_connection(attributes: RequestAttributes, call: HttpRequest) -> JsonObject:
    kind = f"{attributes.kind.kind}{_CONNECTIONS[attributes.subresource]}"
    options: JsonObject = {"kind": kind, "apiVersion": "v1"}
    pairs = parse_qsl(call.query.decode("latin-1"), max_num_fields=256)
    for name, value in pairs:
        if name in _LISTS:
            options.setdefault(name, []).append(value)
        elif name in _FLAGS:
            options[name] = value in ("1", "true")
        elif name in ("container", "path"):
            options[name] = value
    return options


def _succeed(warnings: tuple[str, ...]) -> Written:
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    status |= {"status": "Success", "code": HTTPStatus.CREATED}
    return Written(status, warnings, is_new=True)
