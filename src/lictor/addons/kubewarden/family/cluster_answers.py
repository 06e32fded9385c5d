"""What does the cluster hold, and who may do what there? Answers for policies, as JSON."""

from collections.abc import Sequence

import orjson

from lictor.addons.kubewarden.family.host_requests import (
    CheckAccess,
    GetObject,
    GetPluralName,
    ListAllObjects,
    ListNamespaceObjects,
)
from lictor.core.errors import HostCallError
from lictor.core.lang.field_mask import compile_field_mask
from lictor.core.ports import ApiCall, Lookups, ObjectQuery
from lictor.core.raw import JsonObject

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# The identity of an object: always kept.
_ALWAYS_SHOWN = (
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
)
_LARGEST_ANSWER = 64 * 1024 * 1024
# Lists that are kept as they were written, until their objects change.
_MOST_WRITTEN = 8
_LARGEST_WRITTEN = 8 * 1024 * 1024


class ClusterAnswers:
    """Answers for one policy; its permissions were checked before."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._written: dict[ObjectQuery, tuple[Sequence[JsonObject], bytes]] = {}

    def get_object(self, request: GetObject) -> bytes:
        """The object, with its managed fields."""
        facts = self._lookups.describe_kind(request.api_version, request.kind)
        what = f"{request.api_version}/{request.kind}"
        # Without a name, the path would be that of all objects.
        if not request.name:
            raise HostCallError(f"{what}: no name was provided")
        if facts.namespaced and not request.namespace:
            raise HostCallError(f"Resource {what} is namespaced, but no namespace was provided")
        namespace = request.namespace or "" if facts.namespaced else ""
        found = self._lookups.resource(request.api_version, request.kind, namespace, request.name)
        if found is None:
            raise HostCallError(
                f"Cannot find {what} named '{request.name}' inside of namespace "
                f"'{request.namespace}'"
            )
        if request.field_masks is not None:
            found = compile_field_mask(request.field_masks, always=_ALWAYS_SHOWN)(found)
        return _limit(orjson.dumps(found))

    def list_objects(self, request: ListAllObjects | ListNamespaceObjects) -> bytes:
        """A List; the very same bytes as before where nothing has changed."""
        query = ObjectQuery(
            request.api_version,
            request.kind,
            label_selector=request.label_selector or "",
            field_selector=request.field_selector or "",
            field_masks=request.field_masks or (),
            namespace=self._read_namespace(request),
        )
        objects = self._lookups.select_objects(query)
        before = self._written.get(query)
        if before is not None and before[0] is objects:
            return before[1]
        answer = _limit(orjson.dumps(_make_list(query, objects)))
        self._keep(query, objects, answer)
        return answer

    def check_access(self, request: CheckAccess) -> bytes:
        """The status of a SubjectAccessReview."""
        asked = request.request
        attributes = {
            name: getattr(asked.resource_attributes, name)
            for name in asked.resource_attributes.__struct_fields__
            if getattr(asked.resource_attributes, name) is not None
        }
        spec: JsonObject = {"resourceAttributes": attributes}
        if asked.user is not None:
            spec["user"] = asked.user
        if asked.groups is not None:
            spec["groups"] = list(asked.groups)
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": spec,
        }
        answer = self._lookups.call_api(ApiCall(_REVIEWS, "POST", review))
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
            raise HostCallError("the API server answered an access review without a status")
        return orjson.dumps({name: value for name, value in status.items() if value is not None})

    def get_plural_name(self, request: GetPluralName) -> bytes:
        facts = self._lookups.describe_kind(request.api_version, request.kind)
        return orjson.dumps(facts.resource)

    def _read_namespace(self, request: ListAllObjects | ListNamespaceObjects) -> str:
        facts = self._lookups.describe_kind(request.api_version, request.kind)
        if not isinstance(request, ListNamespaceObjects):
            return ""
        if not facts.namespaced:
            raise HostCallError(
                f"resource {request.api_version}/{request.kind} is cluster wide. Cannot search "
                "for it inside of a namespace"
            )
        # Empty would be all of them.
        if not request.namespace:
            raise HostCallError("no namespace was provided")
        return request.namespace

    def _keep(self, query: ObjectQuery, objects: Sequence[JsonObject], answer: bytes) -> None:
        """Other threads may do the same at the same time: no step depends on the one before."""
        if len(answer) > _LARGEST_WRITTEN:
            self._written.pop(query, None)
            return
        if len(self._written) >= _MOST_WRITTEN:
            self._written = {}
        self._written[query] = (objects, answer)


def _make_list(query: ObjectQuery, objects: Sequence[JsonObject]) -> JsonObject:
    return {
        "apiVersion": query.api_version,
        "kind": f"{query.kind}List",
        "metadata": {},
        "items": [_complete(each) for each in objects],
    }


def _complete(item: JsonObject) -> JsonObject:
    """Policies find these three in each item, also where it has none."""
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return {
        **item,
        "metadata": {
            **metadata,
            "annotations": metadata.get("annotations") or {},
            "labels": metadata.get("labels") or {},
            "managedFields": [],
        },
    }


def _limit(answer: bytes) -> bytes:
    if len(answer) > _LARGEST_ANSWER:
        raise HostCallError(
            f"the answer has more than {_LARGEST_ANSWER} bytes: use selectors or field masks"
        )
    return answer
