"""The parts of the server that every verb needs."""

import msgspec

from lictor.addons.apiserver.access.authorization import Authorization
from lictor.addons.apiserver.admission.chain import AdmissionChain
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.resources.event import GROUP as EVENTS
from lictor.addons.apiserver.status_errors import not_found
from lictor.addons.apiserver.store import Store
from lictor.core.raw import JsonObject

# The server itself.
SYSTEM = ApiUser("system:apiserver", ("system:masters", "system:authenticated"))


class ServerContext(msgspec.Struct, frozen=True):
    """What is kept, what is known of kinds, and who decides."""

    store: Store
    catalogue: KindCatalogue
    authorization: Authorization
    admission: AdmissionChain

    def find(self, attributes: RequestAttributes) -> JsonObject:
        """The object of a request, in the requested version; raises RefusedRequestError 404."""
        kind = attributes.kind
        found = self.store.get(kind, attributes.namespace, attributes.name)
        if found is None:
            raise not_found(kind, attributes.name)
        return self.show(kind, found)

    def show(self, kind: ServedKind, document: JsonObject) -> JsonObject:
        """An object as it is served in this version."""
        return self.catalogue.convert(document, kind)

    def keep(self, kind: ServedKind, document: JsonObject) -> JsonObject:
        """An object in its storage version."""
        # Both groups of Events are views of the same objects.
        group = "" if kind.group == EVENTS else kind.group
        kept = self.catalogue.preferred(group, kind.plural) or kind
        return self.catalogue.convert(document, kept)
