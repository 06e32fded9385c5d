"""What is a request sent to? As an API server says, or else as the object and its kind say."""

from lictor.kubernetes.resource_names import ResourceNames
from lictor.match.combine import RequestClass
from lictor.match.metadata import read_text
from lictor.model.request import Request


def is_namespaced(requests: RequestClass, names: ResourceNames) -> bool | None:
    """Does such an object lie in a namespace? None where nobody knows."""
    kind = requests.kind
    targets = names.targets(kind.group, kind.version, kind.kind, requests.subresource)
    return targets[0].namespaced


def read_told(request: Request, field: str) -> str:
    """The `name` or the `namespace` of what is asked for."""
    if request.admission is not None:
        value = request.admission.get(field)
        if isinstance(value, str) and value:
            return value
    return read_text(request.resource, field)


def read_place(request: Request) -> tuple[str, str, str] | None:
    """Group, version and name of the resource, where an API server told them."""
    place = request.admission.get("resource") if request.admission is not None else None
    if not isinstance(place, dict):
        return None
    group, version, resource = place.get("group", ""), place.get("version"), place.get("resource")
    if isinstance(group, str) and isinstance(version, str) and isinstance(resource, str):
        return group, version, resource
    return None
