"""How well is a Pod treated when a node runs short? By what its containers ask for."""

from lictor.apiserver.object_reader import read_list, read_object
from lictor.lang.quantity import parse_quantity
from lictor.raw import Json, JsonObject

_RESOURCES = ("cpu", "memory")


def find_quality(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort."""
    containers = [*read_list(spec, "containers"), *read_list(spec, "initContainers")]
    requests = [_read_amounts(each, "requests") for each in containers]
    limits = [_read_amounts(each, "limits") for each in containers]
    if not any(requests) and not any(limits):
        return "BestEffort"
    pairs = zip(requests, limits, strict=True)
    # Requests that are not told are the limits.
    if all(len(limit) == len(_RESOURCES) and {**limit, **asked} == limit for asked, limit in pairs):
        return "Guaranteed"
    return "Burstable"


def _read_amounts(container: JsonObject, field: str) -> dict[str, Json]:
    amounts = read_object(read_object(container, "resources"), field)
    read = {name: _read(amounts[name]) for name in _RESOURCES if name in amounts}
    return {name: amount for name, amount in read.items() if amount}


def _read(amount: Json) -> Json:
    """The number; nothing for zero and for what is no quantity."""
    try:
        return parse_quantity(str(amount)).value or None
    except ValueError:
        return None
