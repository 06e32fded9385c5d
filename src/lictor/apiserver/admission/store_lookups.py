"""What expressions of policies in the API server may ask: its own objects, its own authorizer."""

from collections.abc import Mapping
from datetime import UTC, datetime

from lictor.apiserver.access.authorization import Authorization
from lictor.apiserver.access.rbac import Question
from lictor.apiserver.attributes import ApiUser
from lictor.apiserver.reading import ObjectReader, read_object, read_text, read_texts
from lictor.errors import NotProvidedError
from lictor.ports import ApiCall, NoLookups
from lictor.raw import Json, JsonObject

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class StoreLookups(NoLookups):
    """Objects of the store and answers of its authorizer; nothing of the outside."""

    def __init__(self, reader: ObjectReader, authorization: Authorization) -> None:
        self._reader = reader
        self._authorization = authorization

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        found = self._reader.catalogue.find_kind(api_version, kind)
        return None if found is None else self._reader.objects.get(found, namespace, name)

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        found = self._reader.catalogue.find_kind(api_version, kind)
        return [] if found is None else self._reader.objects.list(found, namespace)

    def call_api(self, call: ApiCall) -> Json:
        if call.url_path != _REVIEWS or call.method != "POST":
            raise NotProvidedError(f"no call of {call.url_path or call.service_url} from here")
        allowed, reason = self._authorization.decide(read_question(read_object(call.data, "spec")))
        return {"status": {"allowed": allowed, "reason": reason}}

    def now(self) -> datetime:
        return datetime.now(UTC)


def read_question(spec: JsonObject, user: ApiUser | None = None) -> Question:
    """What an access review asks; `user` where it asks about the one who asks."""
    who = user or ApiUser(
        read_text(spec, "user"),
        read_texts(spec, "groups"),
        read_text(spec, "uid"),
        _read_extra(read_object(spec, "extra")),
    )
    path = read_object(spec, "nonResourceAttributes")
    if path:
        return Question(who, read_text(path, "verb"), path=read_text(path, "path"))
    asked = read_object(spec, "resourceAttributes")
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Question(who, **{field: read_text(asked, field) for field in fields})


def _read_extra(extra: JsonObject) -> Mapping[str, tuple[str, ...]]:
    return {name: read_texts(extra, name) for name in extra}
