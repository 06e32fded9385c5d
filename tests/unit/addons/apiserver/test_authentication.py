"""Who asks: certificates, tokens, impersonation."""

import pytest
from access_world import World, make

from lictor.addons.apiserver.access.authentication import Authentication
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.service_account_tokens import (
    BoundTo,
    ServiceTokens,
    TokenGrant,
    TokenRequests,
)
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json
from lictor.http.messages import HttpRequest

KEY = b"k" * 32
ACCOUNT_GROUPS = (
    "system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated",
)  # fmt: skip


class _Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _call(path: str = "/api", certificate: Json = None, **headers: str | list[str]) -> HttpRequest:
    kept = {
        name.replace("_", "-").encode(): [
            value.encode() for value in (values if isinstance(values, list) else [values])
        ]
        for name, values in headers.items()
    }
    return HttpRequest("GET", path, b"", b"", b"", kept, certificate)


def _certificate(*pairs: tuple[str, str]) -> Json:
    return {"subject": tuple((pair,) for pair in pairs)}


def _build(world: World, clock: _Clock | None = None) -> tuple[Authentication, ServiceTokens]:
    tokens = ServiceTokens(KEY, world.reader, clock=clock or _Clock())
    static = {"secret": ApiUser("root", ("system:masters",)), "weak": ApiUser("ann", ("devs",))}
    return Authentication(world.authorization, tokens, static), tokens


CERTIFICATE = _certificate(
    ("organizationName", "a"), ("organizationName", "b"), ("commonName", "jane")
)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (_call(certificate=CERTIFICATE), ApiUser("jane", ("a", "b", "system:authenticated"))),
        (
            _call(authorization="Bearer secret"),
            ApiUser("root", ("system:masters", "system:authenticated")),
        ),
        (
            _call(authorization="bearer  weak "),
            ApiUser("ann", ("devs", "system:authenticated")),
        ),
        (_call("/version"), ApiUser("system:anonymous", ("system:unauthenticated",))),
        (_call("/healthz/ping"), ApiUser("system:anonymous", ("system:unauthenticated",))),
        (
            # TLS has verified it: it counts more than a token.
            _call(certificate=CERTIFICATE, authorization="Bearer wrong"),
            ApiUser("jane", ("a", "b", "system:authenticated")),
        ),
    ],
    ids=["certificate", "token", "token-spaces", "version", "health", "both"],
)
def test_who_asks(call: HttpRequest, expected: ApiUser) -> None:
    assert _build(World())[0].identify(call) == expected


@pytest.mark.parametrize(
    "call",
    [
        _call(),
        _call(authorization="Bearer wrong"),
        _call("/version", authorization="Bearer wrong"),
        _call(authorization="Basic c2VjcmV0"),
        _call(authorization="Bearer a.b.c"),
        _call(authorization="Bearer \u00ff\u00ff.\u00ff.\u00ff"),
        _call(certificate=_certificate(("organizationName", "a"))),
    ],
    ids=["nobody", "wrong", "wrong-open-path", "basic", "no-jwt", "no-ascii", "no-name"],
)
def test_nobody_can_tell(call: HttpRequest) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _build(World())[0].identify(call)
    assert (error.value.code, error.value.message) == (401, "Unauthorized")


def test_token_of_an_account() -> None:
    clock = _Clock()
    world = World()
    authentication, tokens = _build(world, clock)
    token, until = tokens.sign(TokenGrant("default", "default", "ServiceAccount-default"))
    assert until == clock.now + 3600
    user = authentication.identify(_call(authorization=f"Bearer {token}"))
    assert (user.name, user.groups) == ("system:serviceaccount:default:default", ACCOUNT_GROUPS)
    assert user.uid == "ServiceAccount-default"
    assert list(user.extra) == ["authentication.kubernetes.io/credential-id"]
    clock.now += 3601
    with pytest.raises(RefusedRequestError):
        authentication.identify(_call(authorization=f"Bearer {token}"))


def test_token_survives_a_restart_but_not_its_account() -> None:
    world = World()
    _, tokens = _build(world)
    token, _ = tokens.sign(TokenGrant("default", "default", "ServiceAccount-default"))
    again, _ = _build(world)
    assert again.read_token(token) is not None
    world.store.remove(_accounts(world), "default", "default")
    assert again.read_token(token) is None
    world.put(make("v1", "ServiceAccount", "default", "default") | {})
    assert again.read_token(token) is not None
    other = ServiceTokens(b"o" * 32, world.reader, clock=_Clock())
    assert other.read(token) is None


def test_token_ends_with_its_pod() -> None:
    pod = make("v1", "Pod", "p", "default", spec={"serviceAccountName": "default"})
    world = World(pod)
    _, tokens = _build(world)
    bound = BoundTo("Pod", "p", "Pod-p")
    token, _ = tokens.sign(TokenGrant("default", "default", "ServiceAccount-default", bound=bound))
    user = tokens.read(token)
    assert user is not None
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    world.store.remove(world.kind_of(pod), "default", "p")
    assert tokens.read(token) is None


def test_token_for_another_audience() -> None:
    _, tokens = _build(World())
    grant = TokenGrant("default", "default", "ServiceAccount-default", audiences=("vault",))
    token, _ = tokens.sign(grant)
    assert tokens.read(token) is None
    assert tokens.read(token, ("vault", "other")) is not None
    assert tokens.audiences_of(token, ("vault", "other")) == ("vault",)


def _accounts(world: World) -> ServedKind:
    kind = world.catalogue.find("", "v1", "serviceaccounts")
    assert kind is not None
    return kind


# --- TokenRequests


def test_token_request() -> None:
    world = World()
    _, tokens = _build(world)
    requests = TokenRequests(world.reader, tokens)
    body = {"spec": {"expirationSeconds": 600}}
    answer = requests.issue(_accounts(world), "default", "default", body)
    assert answer["kind"] == "TokenRequest"
    assert answer["spec"] == {
        "audiences": ["https://kubernetes.default.svc.cluster.local"],
        "expirationSeconds": 600,
        "boundObjectRef": None,
    }
    assert answer["status"]["expirationTimestamp"] == "1970-01-12T13:56:40Z"
    assert tokens.read(answer["status"]["token"]) is not None


@pytest.mark.parametrize(
    ("name", "body", "code", "message"),
    [
        ("nobody", {}, 404, 'serviceaccounts "nobody" not found'),
        (
            "default",
            {"spec": {"expirationSeconds": 60}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid '
            "value: 60: may not specify a duration less than 10 minutes",
        ),
        (
            "default",
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}},
            404,
            'pods "p" not found',
        ),
        (
            "default",
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Service", "name": "p"}}},
            400,
            "cannot bind token to object of type /v1, Kind=Service",
        ),
        (
            "default",
            {"metadata": {"name": "other"}},
            422,
            'TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid '
            'value: "other": must match the service account name if specified',
        ),
    ],
    ids=["account", "seconds", "pod", "kind", "name"],
)
def test_refused_token_request(name: str, body: Json, code: int, message: str) -> None:
    world = World()
    requests = TokenRequests(world.reader, _build(world)[1])
    with pytest.raises(RefusedRequestError) as error:
        requests.issue(_accounts(world), "default", name, body)
    assert (error.value.code, error.value.message) == (code, message)


# --- impersonation


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"impersonate_user": "jane"}, ApiUser("jane", ("system:authenticated",))),
        (
            {"impersonate_user": "jane", "impersonate_group": ["a", "b"]},
            ApiUser("jane", ("a", "b", "system:authenticated")),
        ),
        (
            {"impersonate_user": "system:serviceaccount:default:x"},
            ApiUser("system:serviceaccount:default:x", ACCOUNT_GROUPS),
        ),
        (
            {"impersonate_user": "system:anonymous"},
            ApiUser("system:anonymous", ("system:unauthenticated",)),
        ),
        (
            {
                "impersonate_user": "jane",
                "impersonate_uid": "7",
                "impersonate_extra_acme.com%2fx": ["1", "2"],
            },
            ApiUser("jane", ("system:authenticated",), "7", {"acme.com/x": ("1", "2")}),
        ),
    ],
    ids=["user", "groups", "account", "anonymous", "extra"],
)
def test_impersonation(headers: dict[str, str | list[str]], expected: ApiUser) -> None:
    call = _call(authorization="Bearer secret", **headers)
    assert _build(World())[0].identify(call) == expected


@pytest.mark.parametrize(
    ("headers", "code", "message"),
    [
        (
            {"impersonate_user": "jane"},
            403,
            'users "jane" is forbidden: User "ann" cannot impersonate resource "users" in API '
            'group "" at the cluster scope',
        ),
        (
            {"impersonate_user": "system:serviceaccount:default:x"},
            403,
            'serviceaccounts "x" is forbidden: User "ann" cannot impersonate resource '
            '"serviceaccounts" in API group "" in the namespace "default"',
        ),
        (
            {"impersonate_group": "a"},
            500,
            "Internal error occurred: requested groups, uid or extra without impersonating a user",
        ),
    ],
    ids=["user", "account", "nobody"],
)
def test_refused_impersonation(headers: dict[str, str], code: int, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _build(World())[0].identify(_call(authorization="Bearer weak", **headers))
    assert (error.value.code, error.value.message) == (code, message)
