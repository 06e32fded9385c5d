"""Subresources that are more than a part of their object: tokens, evictions, logs and the like."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

from lictor.apiserver.access.token_requests import TokenRequests
from lictor.apiserver.attributes import RequestAttributes
from lictor.apiserver.bodies import read_document
from lictor.apiserver.context import ServerContext
from lictor.apiserver.deletion import read_options
from lictor.apiserver.loopback_client import LoopbackClient
from lictor.apiserver.scaling import Scaling
from lictor.apiserver.status_errors import bad_request, not_allowed
from lictor.apiserver.writing import Written
from lictor.errors import RefusedRequestError
from lictor.http import Call, Reply
from lictor.model.request import Operation
from lictor.raw import JsonObject

# What is sent to a subresource that opens a connection, and its parameters that may come often.
_CONNECTIONS = {
    "exec": "ExecOptions",
    "attach": "AttachOptions",
    "portforward": "PortForwardOptions",
    "proxy": "ProxyOptions",
}
_LISTS = frozenset(("command", "ports"))
_FLAGS = frozenset(("stdin", "stdout", "stderr", "tty"))

SubresourceHandler = Callable[[RequestAttributes, Call], Awaitable[Written | Reply]]


class SubresourceHandlers:
    """Answers what is asked of them; everything else is a part of its object."""

    def __init__(self, context: ServerContext, api: LoopbackClient, tokens: TokenRequests) -> None:
        self._context = context
        self._api = api
        self._tokens = tokens
        self._scaling = Scaling(context)
        self._answers: dict[tuple[str, str], SubresourceHandler] = {
            ("serviceaccounts", "token"): self._issue_token,
            ("pods", "eviction"): self._evict,
            ("pods", "binding"): self._bind,
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

    async def _issue_token(self, attributes: RequestAttributes, call: Call) -> Written:
        request = _read_sent(attributes, call)
        heard = await self._admit(attributes, request)
        kind, namespace, name = attributes.kind, attributes.namespace, attributes.name
        return Written(self._tokens.issue(kind, namespace, name, request), heard, is_new=True)

    async def _evict(self, attributes: RequestAttributes, call: Call) -> Written:
        eviction = _read_sent(attributes, call)
        self._context.find(attributes)
        heard = await self._admit(attributes, eviction)
        deletion = msgspec.structs.replace(
            attributes, verb="delete", subresource="", operation=Operation.DELETE
        )
        sent = eviction.get("deleteOptions") or {}
        dry = attributes.dry_run or sent.get("dryRun") == ["All"]
        deletion = msgspec.structs.replace(deletion, dry_run=dry)
        deleted = await self._api.deleter.delete(deletion, read_options(sent))
        return _succeed((*heard, *deleted.warnings))

    async def _bind(self, attributes: RequestAttributes, call: Call) -> Written:
        binding = _read_sent(attributes, call)
        heard = await self._admit(attributes, binding)
        target = binding.get("target")
        node = target.get("name") if isinstance(target, dict) else None
        if not isinstance(node, str) or not node:
            raise bad_request("a binding needs the name of a node in target.name")
        kind = attributes.kind

        def place(pod: JsonObject) -> JsonObject:
            if (pod.get("spec") or {}).get("nodeName"):
                held = pod["spec"]["nodeName"]
                why = f'pod {attributes.name} is already assigned to node "{held}"'
                raise RefusedRequestError(
                    f'Operation cannot be fulfilled on pods/binding "{attributes.name}": {why}',
                    code=HTTPStatus.CONFLICT,
                    reason="Conflict",
                    details={"name": attributes.name, "kind": "pods/binding"},
                )
            return {**pod, "spec": {**pod.get("spec", {}), "nodeName": node}}

        pod = place(self._context.find(attributes))
        if not attributes.dry_run:
            store = self._context.store
            store.put(kind, pod, expected=pod["metadata"]["resourceVersion"])
            await store.settle()
        return _succeed(heard)

    async def _show_log(self, attributes: RequestAttributes, call: Call) -> Reply:
        """Nothing runs here, so nobody has said anything."""
        if call.method != "GET":
            raise not_allowed()
        self._context.find(attributes)
        return Reply(HTTPStatus.OK, b"")

    async def _connect(self, attributes: RequestAttributes, call: Call) -> Written:
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
        """Warnings of those who were asked."""
        admission = self._context.admission
        admitted = await admission.mutate(attributes, document, None)
        heard = await admission.validate(attributes, admitted.document or document, None)
        return (*admitted.warnings, *heard)


def _read_sent(attributes: RequestAttributes, call: Call) -> JsonObject:
    """What is sent to a subresource that creates something; it is about its object."""
    if call.method != "POST":
        raise not_allowed()
    sent = read_document(call.body, call.content_type)
    metadata = sent.get("metadata", {}) if isinstance(sent, dict) else None
    if not isinstance(sent, dict) or not isinstance(metadata or {}, dict):
        raise bad_request("the body must be an object")
    name = (metadata or {}).get("name") or attributes.name
    if name != attributes.name:
        raise bad_request(f"name in URL does not match name in {sent.get('kind')} object")
    return {**sent, "metadata": {**(metadata or {}), "name": name}}


def _describe_connection(attributes: RequestAttributes, call: Call) -> JsonObject:
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
