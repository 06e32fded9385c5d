"""Tokens of ServiceAccounts: signed by a key of the server, read back as users."""

import hashlib
import hmac
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import orjson

from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.json_fields import read_object, read_text, read_texts
from lictor.addons.apiserver.kind import ObjectReader, ServedKind
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.status_errors import bad_request, conflict, invalid_object, not_found
from lictor.core.crypto.json_web_token import decode_token
from lictor.core.errors import FunctionError, RefusedRequestError
from lictor.core.raw import Json, JsonObject

_SECONDS = 3600
_LEAST = 600
_MOST = 1 << 32
_BINDABLE = ("Pod", "Secret", "Node")


class BoundTo(msgspec.Struct, frozen=True):
    """The object with which a token ends."""

    kind: str = ""
    name: str = ""
    uid: str = ""


ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCES = (ISSUER,)


class TokenGrant(msgspec.Struct, frozen=True):
    """The content of a token."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...] = AUDIENCES
    seconds: int = 3600
    bound: BoundTo = BoundTo()


class _Claims(msgspec.Struct, frozen=True):
    user: ApiUser
    namespace: str
    account: str
    until: float
    audiences: tuple[str, ...]
    bound: BoundTo


class ServiceTokens:
    """Makes tokens and reads them; a token ends with its account, or the object it is bound to.

    The key can sign tokens for all accounts: it is stored with the objects.
    """

    def __init__(
        self, key: bytes, reader: ObjectReader, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._key = key
        self._reader = reader
        self._clock = clock
        self._known: dict[str, _Claims] = {}

    def sign(self, grant: TokenGrant) -> tuple[str, float]:
        """A token, and when it ends."""
        now = int(self._clock())
        named: JsonObject = {
            "namespace": grant.namespace,
            "serviceaccount": {"name": grant.name, "uid": grant.uid},
        }
        if grant.bound.kind:
            named[grant.bound.kind.lower()] = {"name": grant.bound.name, "uid": grant.bound.uid}
        claims = {
            "aud": list(grant.audiences),
            "exp": now + grant.seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _CLAIM: named,
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{grant.namespace}:{grant.name}",
        }
        signed = f"{_encode(orjson.dumps(_HEADER))}.{_encode(orjson.dumps(claims))}"
        mark = hmac.digest(self._key, signed.encode(), hashlib.sha256().name)
        return f"{signed}.{_encode(mark)}", float(now + grant.seconds)

    def read(self, token: str, audiences: tuple[str, ...] = ()) -> ApiUser | None:
        """Whom a token stands for, if it is ours, and still good for one of the audiences."""
        claims = self._known.get(token) or self._decode(token)
        if claims is None or claims.until <= self._clock():
            return None
        if not set(claims.audiences) & set(audiences or AUDIENCES):
            return None
        return claims.user if self._is_there(claims) else None

    def audiences_of(self, token: str, audiences: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Which of the audiences a token is meant for."""
        claims = self._known.get(token) or self._decode(token)
        meant = () if claims is None else claims.audiences
        return tuple(each for each in (audiences or AUDIENCES) if each in meant)

    def _decode(self, token: str) -> _Claims | None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        key = {"kty": "oct", "alg": "HS256", "secret": self._key}
        try:
            decoded = decode_token(token, [key], now)
        except (FunctionError, ValueError):
            return None
        claims = _read_claims(decoded["Claims"]) if decoded["Valid"] else None
        if claims is not None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[token] = claims
        return claims

    def _is_there(self, claims: _Claims) -> bool:
        account = self._reader.get("", "serviceaccounts", claims.namespace, claims.account)
        if read_text(read_object(account, "metadata"), "uid") != claims.user.uid:
            return False
        bound = claims.bound
        if not bound.kind:
            return True
        namespace = "" if bound.kind == "Node" else claims.namespace
        found = self._reader.get("", f"{bound.kind.lower()}s", namespace, bound.name)
        return read_text(read_object(found, "metadata"), "uid") == bound.uid


class TokenRequests:
    """Hands out tokens for accounts that are there."""

    def __init__(self, reader: ObjectReader, service_tokens: ServiceTokens) -> None:
        self._reader = reader
        self._service_tokens = service_tokens

    def issue(self, kind: ServedKind, namespace: str, name: str, request: JsonObject) -> JsonObject:
        """The TokenRequest with a token in its status; `kind` is that of ServiceAccounts."""
        account = self._reader.get("", "serviceaccounts", namespace, name)
        if account is None:
            raise not_found(kind, name)
        uid = read_text(read_object(account, "metadata"), "uid")
        _check_metadata(namespace, name, request)
        spec = read_object(request, "spec")
        seconds = _read_seconds(spec)
        audiences = read_texts(spec, "audiences") or AUDIENCES
        bound = self._find_bound(namespace, name, read_object(spec, "boundObjectRef"))
        grant = TokenGrant(namespace, name, uid, audiences, seconds, bound)
        token, until = self._service_tokens.sign(grant)
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": _write_time(until - seconds),
        }
        shown = {**spec, "audiences": list(audiences), "expirationSeconds": seconds}
        shown.setdefault("boundObjectRef", None)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": shown,
            "status": {"token": token, "expirationTimestamp": _write_time(until)},
        }

    def _find_bound(self, namespace: str, account: str, ref: JsonObject) -> BoundTo:
        if not ref:
            return BoundTo()
        kind, name = read_text(ref, "kind"), read_text(ref, "name")
        if kind not in _BINDABLE or read_text(ref, "apiVersion") != "v1":
            raise bad_request(
                f"cannot bind token to object of type /{read_text(ref, 'apiVersion')}, Kind={kind}"
            )
        known = self._reader.catalogue.preferred("", f"{kind.lower()}s")
        home = "" if kind == "Node" else namespace
        found = self._reader.get("", f"{kind.lower()}s", home, name)
        if found is None or known is None:
            raise _missing(known, kind, name)
        if kind == "Pod" and read_text(read_object(found, "spec"), "serviceAccountName") != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different '
                "serviceaccount name."
            )
        uid, wanted = read_text(read_object(found, "metadata"), "uid"), read_text(ref, "uid")
        if wanted and wanted != uid:
            raise conflict(
                known,
                name,
                f"the UID in the bound object reference ({wanted}) does not match the UID in "
                "record. The object might have been deleted and then recreated",
            )
        return BoundTo(kind, name, uid)


def _missing(known: ServedKind | None, kind: str, name: str) -> RefusedRequestError:
    if known is not None:
        return not_found(known, name)
    return bad_request(f"cannot bind token to object of type /v1, Kind={kind}")


def _check_metadata(namespace: str, name: str, request: JsonObject) -> None:
    metadata = read_object(request, "metadata")
    for field, wanted in (("name", name), ("namespace", namespace)):
        given = read_text(metadata, field)
        if given and given != wanted:
            detail = (
                f'Invalid value: "{given}": must match the service account {field} if specified'
            )
            raise _invalid(name, Cause("FieldValueInvalid", detail, f"metadata.{field}"))


def _read_seconds(spec: JsonObject) -> int:
    seconds = spec.get("expirationSeconds", _SECONDS)
    if not isinstance(seconds, int) or seconds < _LEAST:
        detail = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise _invalid("", Cause("FieldValueInvalid", detail, "spec.expirationSeconds"))
    if seconds > _MOST:
        detail = f"Too long: may not be more than {_MOST} bytes"
        raise _invalid("", Cause("FieldValueTooLong", detail, "spec.expirationSeconds"))
    return seconds


def _invalid(name: str, cause: Cause) -> RefusedRequestError:
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest"}
    return invalid_object("TokenRequest.authentication.k8s.io", details, name, [cause])


def _write_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


ACCOUNT_PREFIX = "system:serviceaccount:"
_CLAIM = "kubernetes.io"
_HEADER = {"alg": "HS256", "typ": "JWT"}
_MAX_REMEMBERED = 1024


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of all accounts of a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


def name_controller(name: str) -> ApiUser:
    """The user of a controller of the cluster: a ServiceAccount of kube-system."""
    return ApiUser(f"{ACCOUNT_PREFIX}kube-system:{name}", account_groups("kube-system"))


def _read_claims(claims: Json) -> _Claims | None:
    named = read_object(claims, _CLAIM)
    account = read_object(named, "serviceaccount")
    namespace, name = read_text(named, "namespace"), read_text(account, "name")
    if read_text(claims, "iss") != ISSUER or not namespace or not name:
        return None
    bound = _read_bound(named)
    extra = {"authentication.kubernetes.io/credential-id": (f"JTI={read_text(claims, 'jti')}",)}
    if bound.kind in ("Pod", "Node"):
        word = f"authentication.kubernetes.io/{bound.kind.lower()}"
        extra |= {f"{word}-name": (bound.name,), f"{word}-uid": (bound.uid,)}
    user = ApiUser(
        f"{ACCOUNT_PREFIX}{namespace}:{name}",
        account_groups(namespace),
        read_text(account, "uid"),
        extra,
    )
    return _Claims(user, namespace, name, float(claims["exp"]), tuple(claims["aud"]), bound)


def _read_bound(named: JsonObject) -> BoundTo:
    for kind in ("Pod", "Secret", "Node"):
        found = read_object(named, kind.lower())
        if found:
            return BoundTo(kind, read_text(found, "name"), read_text(found, "uid"))
    return BoundTo()


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
