"""A request on its way through admission: what is asked, and the object as it stands by now."""

from typing import Final

import orjson

from lictor.apiserver.attributes import ApiUser, RequestAttributes
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.reading import read_object, read_text
from lictor.errors import RefusedRequestError
from lictor.model.request import GroupVersionKind, Operation
from lictor.raw import JsonObject

# What is sent to these is of a kind of its own, even where nothing was sent yet.
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
        # A namespace counts as lying in itself.
        self.namespace = attributes.name if is_namespace(kind) else attributes.namespace
        if is_namespace(kind) and not self.namespace:
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
    def told_name(self) -> str:
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
        shape = attributes.kind.shape
        return shape.complete(shape.prune(document))

    def forbid(self, why: str) -> RefusedRequestError:
        """A Status 403 about the object."""
        kind = self.attributes.kind
        details: JsonObject = {"name": self.told_name, "group": kind.group, "kind": kind.plural}
        return RefusedRequestError(
            f'{kind.resource} "{self.told_name}" is forbidden: {why}',
            code=403,
            reason="Forbidden",
            details={field: text for field, text in details.items() if text},
        )


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


def is_namespace(kind: ServedKind) -> bool:
    """Tell whether these are namespaces themselves."""
    return kind.plural == "namespaces" and not kind.group


def missing_namespace(name: str) -> RefusedRequestError:
    """A Status 404 about a namespace."""
    return RefusedRequestError(
        f'namespaces "{name}" not found',
        code=404,
        reason="NotFound",
        details={"name": name, "kind": "namespaces"},
    )


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
