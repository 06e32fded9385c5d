"""The parts of the server that every verb needs."""

import msgspec

from lictor.apiserver.access.authorization import Authorization
from lictor.apiserver.admission.chain import AdmissionChain
from lictor.apiserver.event_views import is_event, view_event
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.request import ApiUser, RequestAttributes
from lictor.apiserver.status_errors import not_found
from lictor.apiserver.store import Store
from lictor.raw import JsonObject

# The server itself, where it keeps its own context.
SYSTEM = ApiUser("system:apiserver", ("system:masters", "system:authenticated"))


class ServerContext(msgspec.Struct, frozen=True):
    """What is kept, what is known of kinds, and who decides."""

    store: Store
    catalogue: KindCatalogue
    authorization: Authorization
    admission: AdmissionChain

    def find(self, attributes: RequestAttributes) -> JsonObject:
        """The object of a request, in the version asked for; raises RefusedRequestError 404."""
        kind = attributes.kind
        found = self.store.get(kind, attributes.namespace, attributes.name)
        if found is None:
            raise not_found(kind, attributes.name)
        return self.show(kind, found)

    def show(self, kind: ServedKind, document: JsonObject) -> JsonObject:
        """An object as it is served in this version."""
        if document["apiVersion"] == kind.api_version:
            return document
        return (
            view_event(document, kind) if is_event(kind) else self.catalogue.convert(document, kind)
        )

    def keep(self, kind: ServedKind, document: JsonObject) -> JsonObject:
        """An object as it is kept, whichever version it was sent in."""
        if is_event(kind):
            core = self.catalogue.find("", "v1", kind.plural)
            return document if core is None else view_event(document, core)
        kept = self.catalogue.preferred(kind.group, kind.plural) or kind
        return document if kept is kind else self.catalogue.convert(document, kept)
