"""A store with namespaces and whatever a test puts there; and webhooks that answer as told."""

import asyncio
import ssl
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus

import orjson

from lictor.addons.apiserver.access.authorization import Authorization
from lictor.addons.apiserver.admission.chain import AdmissionChain
from lictor.addons.apiserver.kind import ObjectReader, ServedKind
from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.store import Store
from lictor.core.errors import RefusedRequestError
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject
from lictor.http.keys import Algorithm, KeyPair, make_authority, make_serving
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.http.server import HttpServer

ADMIN = ApiUser("admin", ("system:masters", "system:authenticated"))
HOST = "hook.default.svc"

Answer = Callable[[JsonObject], JsonObject]


class World:
    """What access and admission are built on."""

    def __init__(self, *documents: JsonObject) -> None:
        self.store = Store()
        self.catalogue = build_catalogue()
        self.reader = ObjectReader(self.store, self.catalogue)
        self.authorization = Authorization(self.store, self.catalogue)
        self.put(make("v1", "Namespace", "default"), make("v1", "Namespace", "kube-system"))
        self.put(make("v1", "ServiceAccount", "default", "default"))
        self.put(*documents)

    def put(self, *documents: JsonObject) -> None:
        for document in documents:
            self.store.put(self.kind_of(document), document, expected=None)

    def kind_of(self, document: JsonObject) -> ServedKind:
        kind = self.catalogue.find_kind(document["apiVersion"], document["kind"])
        assert kind is not None
        return kind

    def ask(
        self,
        document: JsonObject,
        verb: str = "create",
        user: ApiUser = ADMIN,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> RequestAttributes:
        """A request about an object."""
        metadata = document["metadata"]
        operations = {"create": Operation.CREATE, "delete": Operation.DELETE}
        return RequestAttributes(
            user,
            verb,
            self.kind_of(document),
            metadata.get("namespace", ""),
            metadata.get("name", ""),
            subresource=subresource,
            operation=operations.get(verb, Operation.UPDATE),
            dry_run=dry_run,
            options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        )


def make(api_version: str, kind: str, name: str, namespace: str = "", **more: Json) -> JsonObject:
    """An object; `labels` go to its metadata."""
    metadata: JsonObject = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    if namespace:
        metadata["namespace"] = namespace
    if "labels" in more:
        metadata["labels"] = more.pop("labels")
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def config_map(name: str = "thing", namespace: str = "default", **more: Json) -> JsonObject:
    return make("v1", "ConfigMap", name, namespace, **more)


class Webhooks:
    """A server of webhooks: each path has an answer, and what came is remembered."""

    def __init__(self) -> None:
        self.port = 0
        self.reviews: list[JsonObject] = []
        self.paths: list[str] = []
        self.connections = 0
        self.answers: dict[str, Answer] = {}
        self.replies: dict[str, HttpResponse] = {}

    async def handle(self, call: HttpRequest) -> HttpResponse:
        review = orjson.loads(call.body)
        self.reviews.append(review)
        self.paths.append(f"{call.path}?{call.query.decode()}")
        if call.path in self.replies:
            return self.replies[call.path]
        if call.path == "/slow":
            await asyncio.sleep(3)
        answer = self.answers.get(call.path, allow)(review["request"])
        response = {"uid": review["request"]["uid"], **answer}
        body = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        return HttpResponse(HTTPStatus.OK, orjson.dumps(body), b"application/json")

    def configure(self, name: str = "c", mutating: bool = False, **fields: Json) -> JsonObject:  # noqa: FBT001, FBT002
        """A configuration with one webhook; fields are those of the webhook."""
        return configure(name, [self.hook(**fields)], mutating=mutating)

    def hook(self, **fields: Json) -> JsonObject:
        path = fields.pop("path", "/allow")
        return {
            "name": "w.example.com",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}{path}",
                "caBundle": b64encode(authority().certificate_pem.encode()).decode(),
            },
            "rules": [RULE],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }


RULE: JsonObject = {
    "operations": ["*"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
}


def configure(name: str, webhooks: list[JsonObject], *, mutating: bool) -> JsonObject:
    kind = f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration"
    return make("admissionregistration.k8s.io/v1", kind, name, webhooks=webhooks)


def allow(_: JsonObject) -> JsonObject:
    return {"allowed": True}


def patch(*operations: JsonObject) -> Answer:
    encoded = b64encode(orjson.dumps(operations)).decode()
    return lambda _: {"allowed": True, "patch": encoded, "patchType": "JSONPatch"}


@cache
def authority() -> KeyPair:
    return make_authority("test", Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1))


@cache
def serving_context() -> ssl.SSLContext:
    pair = make_serving(
        authority(), ("127.0.0.1", HOST), Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pair.certificate_pem + pair.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@asynccontextmanager
async def serve_webhooks() -> AsyncIterator[Webhooks]:
    """A server of webhooks on loopback."""
    webhooks = Webhooks()
    gate = HttpServer(webhooks.handle, max_body=1 << 20)

    def connect() -> asyncio.Protocol:
        webhooks.connections += 1
        return gate()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connect, "127.0.0.1", 0, ssl=serving_context())
    webhooks.port = server.sockets[0].getsockname()[1]
    try:
        yield webhooks
    finally:
        server.close()
        await gate.drain(1)


# --- a test with both


Step = Callable[[World, AdmissionChain, Webhooks], Awaitable[None]]


def run_step(step: Step) -> None:
    async def run() -> None:
        world = World()
        admission = AdmissionChain(world.store, world.catalogue, world.authorization)
        async with serve_webhooks() as webhooks:
            try:
                await step(world, admission, webhooks)
            finally:
                await admission.close()

    asyncio.run(run())


def read_refusal(outcome: BaseException | None) -> tuple[int, str, str]:
    assert isinstance(outcome, RefusedRequestError)
    return outcome.code, outcome.reason, outcome.message


async def admit(
    world: World, admission: AdmissionChain, document: JsonObject | None = None, **more: bool
) -> BaseException | None:
    document = document or config_map()
    attributes = world.ask(document, **more)
    try:
        admitted = await admission.mutate(attributes, document, None)
        await admission.validate(attributes, admitted.document, None)
    except RefusedRequestError as error:
        return error
    return None
