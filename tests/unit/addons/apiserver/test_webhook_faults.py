"""Webhooks that refuse, that do not answer as they should, and how they are reached."""

import re
from http import HTTPStatus

import pytest
from access_world import (
    HOST,
    Webhooks,
    World,
    admit,
    config_map,
    make,
    patch,
    read_refusal,
    run_step,
)

from lictor.addons.apiserver.admission.chain import AdmissionChain, Admitted
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject
from lictor.http.messages import HttpResponse

# --- refusals


STATUS = {"status": "Failure", "code": 418, "message": "no tea", "reason": "Teapot"}
REFUSALS: dict[str, tuple[JsonObject, tuple[int, str, str]]] = {
    "status": (
        {"allowed": False, "status": STATUS},
        (418, "Teapot", 'admission webhook "w.example.com" denied the request: no tea'),
    ),
    "reason": (
        {"allowed": False, "status": {"reason": "Because", "code": 200}},
        (400, "Because", 'admission webhook "w.example.com" denied the request: Because'),
    ),
    "nothing": (
        {"allowed": False},
        (400, "", 'admission webhook "w.example.com" denied the request without explanation'),
    ),
}


@pytest.mark.parametrize("mutating", [True, False])
@pytest.mark.parametrize(("answer", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(answer: JsonObject, expected: tuple[int, str, str], *, mutating: bool) -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/a": lambda _: answer}
        world.put(webhooks.configure(mutating=mutating, path="/a", failurePolicy="Ignore"))
        outcome = await admit(world, admission)
        assert read_refusal(outcome) == expected

    run_step(step)


def test_warnings() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/a": lambda _: {"allowed": True, "warnings": ["careful", "there"]}}
        world.put(webhooks.configure("m", mutating=True, path="/a"))
        world.put(webhooks.configure("v", path="/a"))
        document = config_map()
        admitted = await admission.mutate(world.ask(document), document, None)
        assert admitted == Admitted(document, ("careful", "there"))
        heard = await admission.validate(world.ask(document), document, None)
        assert heard == ("careful", "there")

    run_step(step)


def test_dry_run() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure(sideEffects="NoneOnDryRun"))
        assert await admit(world, admission, dry_run=True) is None
        assert webhooks.reviews[0]["request"]["dryRun"] is True
        world.put(webhooks.configure(sideEffects="Some"))
        assert await admit(world, admission) is None
        assert read_refusal(await admit(world, admission, dry_run=True)) == (
            400, "BadRequest", 'admission webhook "w.example.com" does not support dry run',
        )  # fmt: skip

    run_step(step)


def test_all_that_check_are_asked_though_one_refuses() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/b": lambda _: {"allowed": False, "status": {"message": "no"}}}
        for name in ("a", "b", "c"):
            world.put(webhooks.configure(name, path=f"/{name}"))
        outcome = await admit(world, admission)
        told = 'admission webhook "w.example.com" denied the request: no'
        assert read_refusal(outcome) == (400, "", told)
        assert len(webhooks.reviews) == 3

    run_step(step)


# --- webhooks that do not answer as they should


BROKEN: dict[str, tuple[JsonObject, HttpResponse | JsonObject | None, str]] = {
    "refused": (
        {"clientConfig": {"url": "https://127.0.0.1:1/x"}},
        None,
        'failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: '
        "connect: connection refused",
    ),
    "slow": (
        {"path": "/slow", "timeoutSeconds": 1},
        None,
        'failed to call webhook: Post "https://127.0.0.1:PORT/slow?timeout=1s": context deadline '
        "exceeded",
    ),
    "no-service": (
        {"clientConfig": {"service": {"namespace": "default", "name": "nope", "path": "x"}}},
        None,
        'failed to call webhook: Post "https://nope.default.svc:443/x?timeout=10s": service "nope" '
        "not found",
    ),
    "not-found": (
        {"path": "/a"},
        HttpResponse(HTTPStatus.NOT_FOUND, b"what?"),
        "failed to call webhook: the server could not find the requested resource",
    ),
    "error": (
        {"path": "/a"},
        HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, b"oh no\n"),
        'failed to call webhook: an error on the server ("oh no") has prevented the request from '
        "succeeding",
    ),
    "no-response": (
        {"path": "/a"},
        HttpResponse(HTTPStatus.OK, b"{}"),
        "received invalid webhook response: webhook response was absent",
    ),
    "uid": (
        {"path": "/a"},
        {"allowed": True, "uid": "other"},
        'received invalid webhook response: expected response.uid="UID", got "other"',
    ),
    "patch": (
        {"path": "/a"},
        {"allowed": True, "patch": "W10=", "patchType": "JSONPatch"},
        "received invalid webhook response: validating webhook may not return response.patch",
    ),
    "version": (
        {"admissionReviewVersions": ["v3"]},
        None,
        "could not create admission objects: webhook does not accept known AdmissionReview "
        "versions (v1, v1beta1)",
    ),
    "authority": (
        {"path": "/a", "caBundle": ""},
        None,
        'failed to call webhook: Post "https://127.0.0.1:PORT/a?timeout=10s": tls: failed to '
        "verify certificate: x509: certificate signed by unknown authority",
    ),
}


@pytest.mark.parametrize(("fields", "reply", "expected"), BROKEN.values(), ids=BROKEN)
def test_broken_webhooks(fields: JsonObject, reply: Json, expected: str) -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        if isinstance(reply, HttpResponse):
            webhooks.replies = {"/a": reply}
        elif reply is not None:
            webhooks.answers = {"/a": lambda _: reply}
        more = dict(fields)
        no_authority = more.pop("caBundle", None) is not None
        configuration = webhooks.configure(**more)
        if no_authority:
            del configuration["webhooks"][0]["clientConfig"]["caBundle"]
        world.put(configuration)
        code, reason, told = read_refusal(await admit(world, admission))
        told = told.replace(f":{webhooks.port}/", ":PORT/")
        told = re.sub(r'uid="[0-9a-f-]{36}"', 'uid="UID"', told)
        assert (code, reason) == (500, "InternalError")
        beginning = 'Internal error occurred: failed calling webhook "w.example.com": '
        assert told == beginning + expected
        # Whoever says so does not mind.
        configuration["webhooks"][0]["failurePolicy"] = "Ignore"
        world.put({**configuration})
        assert await admit(world, admission) is None

    run_step(step)


def test_patch_that_does_not_fit() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/a": patch({"op": "remove", "path": "/spec/x"})}
        world.put(webhooks.configure(mutating=True, path="/a", failurePolicy="Ignore"))
        code, reason, _ = read_refusal(await admit(world, admission))
        assert (code, reason) == (500, "InternalError")

    run_step(step)


def test_nothing_to_change_where_something_goes() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {
            "/a": patch({"op": "add", "path": "/metadata/labels", "value": {"a": "x"}})
        }
        world.put(webhooks.configure(mutating=True, path="/a"))
        document = config_map()
        with pytest.raises(RefusedRequestError, match="attempted to modify the object"):
            await admission.mutate(world.ask(document, "delete"), None, document)

    run_step(step)


def test_undecided_conditions_refuse() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        condition = {"name": "b", "expression": "object.nothing == 'x'"}
        world.put(webhooks.configure(matchConditions=[condition]))
        code, reason, told = read_refusal(await admit(world, admission))
        assert (code, reason) == (403, "Forbidden")
        assert told == (
            "configmaps \"thing\" is forbidden: expression 'object.nothing == 'x'' resulted in "
            "error: no such key: nothing"
        )

    run_step(step)


def test_conditions_that_cost_too_much_refuse() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        condition = {"name": "b", "expression": "lists.range(1000000000).size() > 0"}
        world.put(webhooks.configure(matchConditions=[condition], failurePolicy="Ignore"))
        code, reason, told = read_refusal(await admit(world, admission))
        assert (code, reason) == (403, "Forbidden")
        assert "actual cost limit exceeded" in told

    run_step(step)


# --- connections


def _slice(port: int, **endpoint: Json) -> JsonObject:
    return make(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "hook-1",
        "default",
        labels={"kubernetes.io/service-name": "hook"},
        addressType="IPv4",
        endpoints=[{"addresses": ["127.0.0.1"], **endpoint}],
        ports=[{"name": "https", "port": port}],
    )


SERVICE = make(
    "v1", "Service", "hook", "default",
    spec={"ports": [{"name": "https", "port": 443, "targetPort": 9443}]},
)  # fmt: skip


def _at_service(webhooks: Webhooks) -> JsonObject:
    configuration = webhooks.configure()
    config = configuration["webhooks"][0]["clientConfig"]
    del config["url"]
    config["service"] = {"namespace": "default", "name": HOST.split(".")[0], "path": "/s"}
    return configuration


def test_service_by_its_slices() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(SERVICE, _slice(webhooks.port), _at_service(webhooks))
        assert await admit(world, admission) is None
        assert webhooks.paths == ["/s?timeout=10s"]
        world.put(_slice(webhooks.port, conditions={"ready": False}))
        told = read_refusal(await admit(world, admission))[2]
        assert told.endswith('no endpoints available for service "hook"')

    run_step(step)


def test_service_by_its_endpoints() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        subset = {
            "addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": webhooks.port}],
        }  # fmt: skip
        endpoints = make("v1", "Endpoints", "hook", "default", subsets=[subset])
        world.put(SERVICE, endpoints, _at_service(webhooks))
        assert await admit(world, admission) is None

    run_step(step)


def test_connections_stay_open() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure())
        for _ in range(5):
            assert await admit(world, admission) is None
        assert (webhooks.connections, len(webhooks.reviews)) == (1, 5)

    run_step(step)
