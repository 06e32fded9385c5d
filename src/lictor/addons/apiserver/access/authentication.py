"""The user of a request, by certificate or token, and impersonation."""

import hashlib
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from lictor.addons.apiserver.access.authorization import AccessQuestion, Authorization
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.service_account_tokens import (
    ACCOUNT_PREFIX,
    ServiceTokens,
    account_groups,
)
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json
from lictor.http.messages import HttpRequest

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = ApiUser("system:anonymous", (UNAUTHENTICATED,))
# Headers that the HTTP server must keep; and all that begin with IMPERSONATE_EXTRA.
HEADERS = frozenset(
    (b"authorization", b"impersonate-user", b"impersonate-group", b"impersonate-uid")
)
IMPERSONATE_EXTRA = b"impersonate-extra-"
# Paths that reveal nothing about objects.
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class Authentication:
    """Knows static tokens, those of ServiceAccounts, and what TLS has verified."""

    def __init__(
        self,
        authorization: Authorization,
        service_tokens: ServiceTokens,
        tokens: Mapping[str, ApiUser] | None = None,
    ) -> None:
        self._authorization = authorization
        self._service_tokens = service_tokens
        # By digest, so that the time of a lookup reveals nothing about a token.
        self._tokens = {_digest(token): _know(user) for token, user in (tokens or {}).items()}

    def identify(self, call: HttpRequest) -> ApiUser:
        """The user of a request; raises RefusedRequestError 401 without valid credentials."""
        user = self._identify_sender(call)
        for name in call.headers:
            if name.startswith(b"impersonate-"):
                return self._impersonate(user, call)
        return user

    def read_token(self, token: str, audiences: tuple[str, ...] = ()) -> ApiUser | None:
        """Whom a token stands for; None where it is of no use."""
        static = self._tokens.get(_digest(token))
        return static if static is not None else self._service_tokens.read(token, audiences)

    def _identify_sender(self, call: HttpRequest) -> ApiUser:
        subject = _read_subject(call.certificate)
        if subject is not None:
            return subject
        token = _read_bearer(call)
        if token:
            user = self.read_token(token)
            if user is None:
                raise _unauthorized()
            return user
        if call.path.startswith(_OPEN_PATHS):
            return ANONYMOUS
        raise _unauthorized()

    # --- on behalf of someone else

    def _impersonate(self, user: ApiUser, call: HttpRequest) -> ApiUser:
        headers = {
            name.decode("latin-1"): [value.decode("utf-8", "replace") for value in values]
            for name, values in call.headers.items()
            if name.startswith(b"impersonate-")
        }
        name = headers.get("impersonate-user", [""])[0]
        if not name:
            detail = "requested groups, uid or extra without impersonating a user"
            raise RefusedRequestError(
                f"Internal error occurred: {detail}", code=500, reason="InternalError"
            )
        for question in _list_questions(user, name, headers):
            self._authorization.require(question)
        groups = tuple(headers.get("impersonate-group", ()))
        if not groups and (account := _split_account(name)):
            groups = account_groups(account[0])
        return ApiUser(
            name,
            _complete_groups(name, groups),
            headers.get("impersonate-uid", [""])[0],
            {key: tuple(values) for key, values in _list_extra(headers)},
        )


def _list_questions(
    user: ApiUser, name: str, headers: dict[str, list[str]]
) -> Iterator[AccessQuestion]:
    """What a user must be allowed to do, to be taken for another."""
    account = _split_account(name)
    if account:
        yield AccessQuestion(
            user, "impersonate", "", "serviceaccounts", namespace=account[0], name=account[1]
        )
    else:
        yield AccessQuestion(user, "impersonate", "", "users", name=name)
    for group in headers.get("impersonate-group", ()):
        yield AccessQuestion(user, "impersonate", "", "groups", name=group)
    for key, values in _list_extra(headers):
        for value in values:
            yield AccessQuestion(
                user, "impersonate", "authentication.k8s.io", "userextras", key, name=value
            )
    for uid in headers.get("impersonate-uid", ())[:1]:
        yield AccessQuestion(user, "impersonate", "authentication.k8s.io", "uids", name=uid)


def _list_extra(headers: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    prefix = IMPERSONATE_EXTRA.decode()
    for name, values in headers.items():
        if name.startswith(prefix):
            yield unquote(name.removeprefix(prefix)), values


def _complete_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if name == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)


def _split_account(name: str) -> tuple[str, str] | None:
    if not name.startswith(ACCOUNT_PREFIX):
        return None
    namespace, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
    return (namespace, account) if namespace and account and ":" not in account else None


# --- what came with the request


def _read_subject(certificate: Json) -> ApiUser | None:
    """The user of a certificate that TLS has verified: CN is the name, each O is a group."""
    if not certificate:
        return None
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for field, value in pairs if field == "commonName"]
    if not names or not names[-1]:
        return None
    groups = tuple(value for field, value in pairs if field == "organizationName")
    return _know(ApiUser(names[-1], groups))


def _read_bearer(call: HttpRequest) -> str:
    for value in call.headers.get(b"authorization", ()):
        scheme, _, token = value.strip().partition(b" ")
        if scheme.lower() == b"bearer":
            return token.strip().decode("latin-1")
    return ""


def _know(user: ApiUser) -> ApiUser:
    if AUTHENTICATED in user.groups:
        return user
    return ApiUser(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _unauthorized() -> RefusedRequestError:
    return RefusedRequestError("Unauthorized", code=401, reason="Unauthorized")
