"""The variables of a request in CEL (`object`, `oldObject`, `request`), converted once per case."""

from collections.abc import Callable, Iterable

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.evaluate.admission_request import describe_request, read_metadata_text
from lictor.core.lang.cel.expression import Activation, make_activation
from lictor.core.lang.cel.library.host import make_authorizer, request_resource
from lictor.core.model.program import Case
from lictor.core.model.request import GroupVersionKind, Request
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject

# Variables that are expensive to compute; built only for policies that use them.
_DEAR = ("namespaceObject", "authorizer")


class View:
    """The variables for the expressions of some policies; equal needs share one view."""

    __slots__ = ("_key", "_values")

    def __init__(self, key: str, values: Callable[[Request], JsonObject]) -> None:
        self._key = key
        self._values = values

    def __call__(self, case: Case) -> Activation:
        """The values of a case, found when first needed."""
        found: Activation | None = case.views.get(self._key)
        if found is None:
            values = self._values(case.request)
            found = case.views[self._key] = make_activation(values, case.deadline)
        return found

    def adding(self, case: Case, /, **values: Json) -> Activation:
        """The same with other values for some variables."""
        return make_activation({**self._values(case.request), **values}, case.deadline)


class RequestViews(msgspec.Struct, frozen=True):
    """How the requests of one engine are presented to CEL."""

    lookups: Lookups
    # The resource name (`pods`) of a kind.
    name_resource: Callable[[GroupVersionKind], str]
    # Present a namespace of which only the name is known; otherwise there is none, and reading its
    # labels is an error.
    shows_bare_namespaces: bool = False

    def view(self, texts: Iterable[str]) -> View:
        """The view for expressions with these texts."""
        joined = "\n".join(texts)
        needs = frozenset(name for name in _DEAR if name in joined)
        bare = "bare" if self.shows_bare_namespaces else ""
        return View(",".join((bare, *sorted(needs))), lambda request: self._values(request, needs))

    def describe(self, request: Request) -> JsonObject:
        """The AdmissionRequest: the original, or as an API server would have sent it."""
        return describe_request(request, self.name_resource)

    def _values(self, request: Request, needs: frozenset[str]) -> JsonObject:
        values: JsonObject = {
            "object": request.object,
            "oldObject": request.old_object,
            "request": self.describe(request),
            "namespaceObject": None,
            "params": None,
            "exceptions": {"allowedImages": [], "allowedValues": []},
        }
        if "namespaceObject" in needs:
            values["namespaceObject"] = self._find_namespace(request)
        if "authorizer" in needs:
            values |= self._authorizers(request)
        return values

    def _find_namespace(self, request: Request) -> JsonObject | None:
        name = namespace_of(request)
        if not name:
            return None
        try:
            found = self.lookups.resource("v1", "Namespace", "", name)
        except NotProvidedError:
            found = None
        if found is not None:
            return found
        if not request.namespace_labels and not self.shows_bare_namespaces:
            return None
        metadata: JsonObject = {"name": name}
        if request.namespace_labels:
            metadata["labels"] = dict(request.namespace_labels)
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def _authorizers(self, request: Request) -> JsonObject:
        described = self.describe(request)
        named = described.get("resource")
        resource = named if isinstance(named, dict) else {}
        asked = {
            "group": str(resource.get("group", "")),
            "resource": str(resource.get("resource", "")),
            "subresource": request.subresource,
            "namespace": namespace_of(request),
            "name": str(described.get("name") or ""),
        }
        who = request.caller
        caller = make_authorizer() if who is None else make_authorizer(who.username, who.groups)
        return {
            "authorizer": caller,
            "authorizer.requestResource": request_resource(caller, **asked),
        }


def view_payload() -> View:
    """The view for policies that evaluate any JSON: only `object`."""
    return View("payload", _payload_values)


def _payload_values(request: Request) -> JsonObject:
    return {
        "object": request.object,
        "oldObject": None,
        "request": None,
        "namespaceObject": None,
        "exceptions": {"allowedImages": [], "allowedValues": []},
    }


def namespace_of(request: Request) -> str:
    """The namespace of the request; empty if it has none."""
    if request.admission is not None:
        given = request.admission.get("namespace")
        return given if isinstance(given, str) else ""
    return read_metadata_text(request, "namespace")
