"""Evaluates live requests beside Kyverno, without effect, and compares the verdicts.

Copies of Kyverno's resource webhooks make the API server send the same requests here. Every request
is allowed at once; if this process does not answer, the API server continues without it
(`failurePolicy: Ignore`). A copy of the request, marked as a dry run so that it has no effect, is
then sent to Kyverno and to lictor.
"""

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from string import Template

import msgspec
import orjson

from lictor.addons.migrate.lictor_server import LictorServer
from lictor.addons.migrate.verdicts import Comparison, VerdictDifference
from lictor.core.errors import ApiError, LictorError, LookupFailedError, UsageError
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.raw import Json, JsonObject
from lictor.http import keys
from lictor.http.keys import Algorithm, KeyPair
from lictor.http.listener import open_port
from lictor.http.messages import JSON, HttpRequest, HttpResponse
from lictor.http.server import HttpServer, serve_port
from lictor.http.serving_certificate import LiveCertificate
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names

log = logging.getLogger(__name__)

# Mutating webhooks are called in the order of these names: this one before Kyverno's.
CONFIGURATION = "compare-with-lictor"
_COPIED = (
    ("resource-validating", kinds.VALIDATING_WEBHOOK),
    ("resource-mutating", kinds.MUTATING_WEBHOOK),
)
_COPIED_FIELDS = (
    "matchConditions",
    "matchPolicy",
    "name",
    "namespaceSelector",
    "objectSelector",
    "rules",
)
_MAX_BODY = 8 * 1024 * 1024
_MOST_WAITING = 500
_AT_ONCE = 4
# Seconds: how long the API server waits for us, Kyverno's answer is waited for, and how often
# Kyverno's webhooks are looked at again.
_TIMEOUT = 2
_PATIENCE = 15.0
_REFRESH = 10.0
_LIFETIME = timedelta(days=30)
_JOB = Path(__file__).with_name("compare_job.yaml")
_JOB_SERVICE = "lictor/lictor-compare"


def build_compare_job(names: Names, image: str, duration: str) -> list[JsonObject]:
    """The manifests of a Job that compares Kyverno with lictor inside the cluster."""
    arguments = [
        "migrate",
        "--compare",
        f"--for={duration}",
        f"--namespace={names.namespace}",
        f"--prefix={names.prefix}",
        f"--reached-by={_JOB_SERVICE}",
    ]
    values = {
        "arguments": arguments,
        "configuration": CONFIGURATION,
        "image": image,
        "namespace": names.namespace,
        "service": _name_port(names),
    }
    # JSON is YAML: a value stays one value, with any characters.
    texts = {name: json.dumps(value) for name, value in values.items()}
    found: list[JsonObject] = parse_yaml_text(Template(_JOB.read_text()).substitute(texts))
    return found


def _name_port(names: Names) -> str:
    """Kyverno's Service as the proxy of the API server names it."""
    return f"https:{names.service}:443"


class CompareOptions(msgspec.Struct, frozen=True):
    """Where the API server finds us, and for how long."""

    seconds: float
    # `HOST:PORT`, or a Service `NAMESPACE/NAME`.
    address: str
    # The address and port to listen on.
    host: str = ""
    port: int = 9443
    # Flags of lictor's server, as in a container.
    arguments: tuple[str, ...] = ()


class LiveComparison:
    """Compares from `run` on, until its time is over or it is cancelled."""

    def __init__(
        self,
        client: Client,
        names: Names,
        options: CompareOptions,
        on_difference: Callable[[VerdictDifference], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._names = names
        self._options = options
        self._on_difference = on_difference
        self._waiting: asyncio.Queue[tuple[str, JsonObject]] = asyncio.Queue(_MOST_WAITING)
        # Paths of Kyverno's webhooks. Requests for other paths are refused: a path becomes part of
        # a request to the API server.
        self._paths: frozenset[str] = frozenset()
        self._lictor = LictorServer(names, options.arguments)
        self.comparison = Comparison()

    async def run(self) -> Comparison:
        """Listen, register, compare; leaves nothing behind in the cluster."""
        authority = keys.make_authority("compare", Algorithm.ECDSA, datetime.now(UTC), _LIFETIME)
        server = HttpServer(self._answer, max_body=_MAX_BODY)
        bound = open_port(self._options.host, self._options.port)
        pair = self._make_serving(authority)
        certificate = LiveCertificate()
        certificate.load(pair.certificate_pem.encode(), pair.key_pem.encode())
        await self._lictor.start()
        tasks = [
            asyncio.create_task(serve_port(bound, server, certificate.context)),
            *(asyncio.create_task(self._work()) for _ in range(_AT_ONCE)),
        ]
        try:
            await self._stay_registered(authority.certificate_pem)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._waiting.join()
        finally:
            await self._unregister()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._lictor.stop()
        return self.comparison

    def _make_serving(self, authority: KeyPair) -> KeyPair:
        address = self._options.address
        if "/" in address:
            namespace, _, name = address.partition("/")
            hosts = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]
        else:
            hosts = [address.rpartition(":")[0].strip("[]")]
        return keys.make_serving(authority, hosts, Algorithm.ECDSA, datetime.now(UTC), _LIFETIME)

    # --- hearing of requests

    async def _answer(self, call: HttpRequest) -> HttpResponse:
        """Allow at once; the request is evaluated afterwards."""
        if call.method != "POST" or call.path not in self._paths:
            return HttpResponse(HTTPStatus.NOT_FOUND, b"no webhook has this path\n")
        try:
            review = orjson.loads(call.body)
            request = review["request"]
            response = {"uid": request["uid"], "allowed": True}
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return HttpResponse(HTTPStatus.BAD_REQUEST, b"no AdmissionReview\n")
        try:
            self._waiting.put_nowait((call.path, review))
        except asyncio.QueueFull:
            self.comparison.left_out += 1
        body = {
            "apiVersion": review.get("apiVersion"),
            "kind": "AdmissionReview",
            "response": response,
        }
        return HttpResponse(HTTPStatus.OK, orjson.dumps(body), JSON)

    async def _work(self) -> None:
        while True:
            path, review = await self._waiting.get()
            try:
                await self._compare(path, review)
            finally:
                self._waiting.task_done()

    async def _compare(self, path: str, review: JsonObject) -> None:
        request = {**review["request"], "dryRun": True}
        copy = {**review, "request": request}
        answers = await asyncio.gather(
            self._ask_kyverno(path, copy), self._lictor.ask(path, copy), return_exceptions=True
        )
        for name, answer in zip(("Kyverno", "lictor"), answers, strict=True):
            if isinstance(answer, LictorError):
                self.comparison.unanswered[f"{name}: {answer}"] += 1
                return
            if isinstance(answer, BaseException):
                raise answer
        found = self.comparison.note(path, request, *answers)
        if found is not None:
            self._on_difference(found)

    async def _ask_kyverno(self, path: str, review: JsonObject) -> Json:
        """Through the API server, which can reach the Service."""
        service = _name_port(self._names)
        start = f"/api/v1/namespaces/{self._names.namespace}/services/{service}/proxy"
        answer = await self._client.request("POST", start + path, body=review, timeout=_PATIENCE)
        return read_response(answer)

    # --- webhooks

    async def _stay_registered(self, authority: str) -> None:
        """Keep our copies of Kyverno's webhooks as its own are, until the time is over."""
        until = asyncio.get_running_loop().time() + self._options.seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            await self._register(authority)
            await asyncio.sleep(min(_REFRESH, left))

    async def _register(self, authority: str) -> None:
        paths: set[str] = set()
        for name, resource in _COPIED:
            theirs = await self._client.find(resource, self._names.webhook(name))
            webhooks = (theirs or {}).get("webhooks") or ()
            paths |= {_find_path(each["clientConfig"]) for each in webhooks}
            self._paths = frozenset(paths) | self._paths
            copies = self._copy(webhooks, authority)
            body = {"metadata": {"name": CONFIGURATION}, "webhooks": copies}
            await self._client.apply(resource, body)
        if not paths:
            raise UsageError(
                f"{self._names.webhook('resource-validating')} has no webhooks: no policy applies"
            )

    def _copy(self, webhooks: Iterable[JsonObject], authority: str) -> list[JsonObject]:
        return [
            {
                **{field: each[field] for field in _COPIED_FIELDS if field in each},
                "clientConfig": self._point(each["clientConfig"], authority),
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "timeoutSeconds": _TIMEOUT,
                "admissionReviewVersions": ["v1"],
            }
            for each in webhooks
        ]

    def _point(self, theirs: JsonObject, authority: str) -> JsonObject:
        """The same path, of our server."""
        bundle = b64encode(authority.encode()).decode()
        path = _find_path(theirs)
        address = self._options.address
        if "/" not in address:
            return {"url": f"https://{address}{path}", "caBundle": bundle}
        namespace, _, name = address.partition("/")
        service = {"name": name, "namespace": namespace, "path": path, "port": 443}
        return {"service": service, "caBundle": bundle}

    async def _unregister(self) -> None:
        for _, resource in _COPIED:
            try:
                await self._client.delete(resource, CONFIGURATION)
            except ApiError as error:
                log.error(
                    "webhooks not removed",
                    extra={"configuration": CONFIGURATION, "why": str(error)},
                )


def _find_path(settings: JsonObject) -> str:
    return str((settings.get("service") or {}).get("path") or "")


def read_response(answer: Json) -> Json:
    """The response in an AdmissionReview; LookupFailedError if there is none."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise LookupFailedError("it answered something that is no AdmissionReview")
    return response
