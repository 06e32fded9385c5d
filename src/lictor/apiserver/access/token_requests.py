"""TokenRequests: `serviceaccounts/token` hands out a token of an account."""

from datetime import UTC, datetime

from lictor.apiserver.access.service_tokens import AUDIENCES, BoundTo, Grant, ServiceTokens
from lictor.apiserver.kind import Cause, ServedKind
from lictor.apiserver.reading import ObjectReader, read_object, read_text, read_texts
from lictor.apiserver.status_errors import bad_request, conflict, invalid_object, not_found
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

_SECONDS = 3600
_LEAST = 600
_MOST = 1 << 32
_BINDABLE = ("Pod", "Secret", "Node")


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
        grant = Grant(namespace, name, uid, audiences, seconds, bound)
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
            told = f'Invalid value: "{given}": must match the service account {field} if specified'
            raise _invalid(name, Cause("FieldValueInvalid", told, f"metadata.{field}"))


def _read_seconds(spec: JsonObject) -> int:
    seconds = spec.get("expirationSeconds", _SECONDS)
    if not isinstance(seconds, int) or seconds < _LEAST:
        told = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise _invalid("", Cause("FieldValueInvalid", told, "spec.expirationSeconds"))
    if seconds > _MOST:
        told = f"Too long: may not be more than {_MOST} bytes"
        raise _invalid("", Cause("FieldValueTooLong", told, "spec.expirationSeconds"))
    return seconds


def _invalid(name: str, cause: Cause) -> RefusedRequestError:
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest"}
    return invalid_object("TokenRequest.authentication.k8s.io", details, name, [cause])


def _write_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
