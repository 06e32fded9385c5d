"""A request under admission, with the current state of its object."""

import uuid
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Hashable
from typing import Final

import msgspec
import orjson

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.status_errors import forbid
from lictor.core.errors import LookupFailedError, RefusedRequestError
from lictor.core.model.request import GroupVersionKind, Operation
from lictor.core.raw import Json, JsonObject


class Reinvocation:
    """What one sort of admission remembers of the first round, for the second and last one."""

    __slots__ = ("_again", "_before", "_last")

    def __init__(self) -> None:
        self._before: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._last: JsonObject | None = None

    def begin(self, document: JsonObject | None, *, again: bool) -> None:
        """A round begins; others may have changed the object since ours ended."""
        if again and document != self._last:
            self.note_change()

    def note_call(self, key: Hashable) -> None:
        """This one has seen the object, and wants to see it again if it changes."""
        self._before.add(key)

    def note_change(self) -> None:
        """Someone changed the object."""
        self._again |= self._before
        self._before.clear()

    def wants(self, key: Hashable) -> bool:
        """Must this webhook or policy be called again?"""
        return key in self._again

    def end(self, document: JsonObject | None) -> None:
        """The round is over, with this result."""
        self._last = document


class MutationPasses:
    """One request's way through all who may change its object."""

    __slots__ = ("is_again", "policies", "wants_another", "webhooks")

    def __init__(self) -> None:
        self.policies = Reinvocation()
        self.webhooks = Reinvocation()
        self.is_again = False
        self.wants_another = False


# The kinds of the objects that these subresources accept.
_OWN_KINDS: Final = {
    "scale": GroupVersionKind("autoscaling", "v1", "Scale"),
    "eviction": GroupVersionKind("policy", "v1", "Eviction"),
    "binding": GroupVersionKind("", "v1", "Binding"),
    "token": GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest"),
}


class Submission:
    """What admission decides about. The object is never changed in place, only replaced."""

    __slots__ = ("_encoded", "attributes", "document", "kind", "namespace", "old", "operation")

    def __init__(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> None:
        self.attributes = attributes
        self.operation = attributes.operation or Operation.CREATE
        self.document = document
        self.old = old
        kind = attributes.kind
        self.kind = _find_kind(attributes, document if document is not None else old)
        # For admission, a namespace is in itself.
        self.namespace = attributes.name if kind.is_namespace else attributes.namespace
        if kind.is_namespace and not self.namespace:
            self.namespace = self.name
        self._encoded: dict[tuple[int, str], orjson.Fragment] = {}

    @property
    def name(self) -> str:
        """Empty where the name is still to be made; and for each of many that go at once."""
        if self.attributes.verb == "deletecollection":
            return ""
        found = self.attributes.name
        return found or read_text(read_object(self.document, "metadata"), "name")

    @property
    def shown_name(self) -> str:
        """What refusals call the object."""
        metadata = read_object(self.document, "metadata")
        return self.name or read_text(metadata, "generateName") or "Unknown"

    def encode(self, document: JsonObject | None, api_version: str) -> orjson.Fragment:
        """An object in a version, as bytes that are made once for all webhooks."""
        key = (id(document), api_version)
        found = self._encoded.get(key)
        if found is None:
            shown = convert(document, api_version)
            found = self._encoded[key] = orjson.Fragment(orjson.dumps(shown))
        return found

    def replace(self, document: JsonObject) -> None:
        """The object as someone has changed it."""
        # Identities of objects that are gone may come back.
        self._encoded.clear()
        self.document = document

    def reread(self, document: JsonObject) -> JsonObject:
        """As the API server reads back what it let others change: pruned, and with defaults."""
        attributes = self.attributes
        if attributes.subresource not in ("", "status"):
            return document
        schema = attributes.kind.schema
        return schema.apply_defaults(schema.prune(document))

    def forbid(self, why: str) -> RefusedRequestError:
        """A Status 403 about the object."""
        kind = self.attributes.kind
        return forbid(kind.group, kind.plural, self.shown_name, why)


def _find_kind(attributes: RequestAttributes, document: JsonObject | None) -> GroupVersionKind:
    """The kind of what is sent, which may be another than that of the object it is about."""
    kind = attributes.kind
    if attributes.subresource not in ("", "status"):
        api_version, name = read_text(document, "apiVersion"), read_text(document, "kind")
        if api_version and name:
            return GroupVersionKind.of(api_version, name)
        if attributes.subresource in _OWN_KINDS:
            return _OWN_KINDS[attributes.subresource]
    return GroupVersionKind(kind.group, kind.version, kind.kind)


def convert(document: JsonObject | None, api_version: str) -> JsonObject | None:
    """The object in another version of its kind; `api_version` is empty where that is the same."""
    if document is None or not api_version or document.get("apiVersion") == api_version:
        return document
    return {**document, "apiVersion": api_version}


def describe_user(user: ApiUser) -> JsonObject:
    """`userInfo`, without what is empty."""
    described: JsonObject = {"username": user.name}
    if user.uid:
        described["uid"] = user.uid
    if user.groups:
        described["groups"] = list(user.groups)
    if user.extra:
        described["extra"] = {name: list(values) for name, values in user.extra.items()}
    return described


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The answer of a webhook."""

    is_allowed: bool
    status: JsonObject
    warnings: tuple[str, ...] = ()
    patch: list[Json] = []


def describe_request(
    submission: Submission, place: ServedKind | None, uid: str = "", *, with_objects: bool = True
) -> JsonObject:
    """The AdmissionRequest; `place` is the version that the webhook requires, if another one."""
    attributes = submission.attributes
    own, subresource = attributes.kind, attributes.subresource
    kind = submission.kind
    asked_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    asked = {"group": own.group, "version": own.version, "resource": own.plural}
    shown_kind, shown = asked_kind, asked
    if place is not None:
        shown = {"group": place.group, "version": place.version, "resource": place.plural}
        if (kind.group, kind.version, kind.kind) == (own.group, own.version, own.kind):
            shown_kind = {"group": place.group, "version": place.version, "kind": place.kind}
    request: JsonObject = {"uid": uid, "kind": shown_kind, "resource": shown}
    if subresource:
        request["subResource"] = subresource
    request |= {"requestKind": asked_kind, "requestResource": asked}
    if subresource:
        request["requestSubResource"] = subresource
    if submission.name:
        request["name"] = submission.name
    if submission.namespace:
        request["namespace"] = submission.namespace
    request["operation"] = str(submission.operation)
    request["userInfo"] = describe_user(attributes.user)
    if with_objects:
        request |= {"object": submission.document, "oldObject": submission.old}
    request |= {"dryRun": attributes.dry_run, "options": _show_options(submission)}
    return request


def _show_options(submission: Submission) -> JsonObject | None:
    """The options; a patch is an update, or a creation, to admission."""
    options = submission.attributes.options
    if options.get("kind") != "PatchOptions":
        return options or None
    kind = "CreateOptions" if submission.operation is Operation.CREATE else "UpdateOptions"
    kept = {field: value for field, value in options.items() if field != "force"}
    return {**kept, "kind": kind}


def write_review(
    submission: Submission, place: ServedKind | None, version: str
) -> tuple[str, bytes]:
    """A review for a webhook, and the uid that the answer must repeat."""
    uid = str(uuid.uuid4())
    request = describe_request(submission, place, uid, with_objects=False)
    shown = "" if place is None else place.api_version
    request["object"] = submission.encode(submission.document, shown)
    request["oldObject"] = submission.encode(submission.old, shown)
    review = {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": request,
    }
    return uid, orjson.dumps(review)


def read_review(content: bytes, uid: str, version: str, *, is_mutating: bool) -> WebhookAnswer:
    """What came back; raises LookupFailedError in Kubernetes' words."""
    try:
        review = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        detail = f"couldn't get version/kind; json parse error: {error}"
        raise LookupFailedError(f"failed to call webhook: {detail}") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise _invalid("webhook response was absent")
    if version == "v1":
        _check_identity(review, response, uid)
        _check_patch(response, is_mutating=is_mutating)
    return WebhookAnswer(
        response.get("allowed") is True,
        read_object(response, "status"),
        tuple(str(each) for each in read_list(response, "warnings")),
        _read_patch(response) if is_mutating else [],
    )


def _check_identity(review: JsonObject, response: JsonObject, uid: str) -> None:
    if response.get("uid") != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    api_version, kind = read_text(review, "apiVersion"), read_text(review, "kind")
    if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview"):
        raise _invalid(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
            f"got {api_version}, Kind={kind}"
        )


def _check_patch(response: JsonObject, *, is_mutating: bool) -> None:
    patch, kind = response.get("patch"), response.get("patchType")
    if not is_mutating:
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if kind is not None:
            raise _invalid("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    elif kind is not None and not patch:
        raise _invalid("webhook returned response.patchType but not response.patch")
    elif kind not in (None, "JSONPatch"):
        raise LookupFailedError(f'unsupported patch type "{kind}"')


def _invalid(detail: str) -> LookupFailedError:
    return LookupFailedError(f"received invalid webhook response: {detail}")


def _read_patch(response: JsonObject) -> list[Json]:
    patch = response.get("patch")
    if not patch:
        return []
    try:
        operations = orjson.loads(b64decode(patch, validate=True))
    except (Base64Error, TypeError, ValueError) as error:
        raise LookupFailedError(
            f"received undecodable patch in webhook response: {error}"
        ) from None
    if not isinstance(operations, list):
        raise LookupFailedError("received undecodable patch in webhook response: it is no list")
    return operations
