"""Where is a Service? The addresses behind it, as EndpointSlices or Endpoints tell them."""

from collections.abc import Iterator
from itertools import count

from lictor.apiserver.reading import ObjectReader, read_list, read_object, read_text
from lictor.errors import LookupFailedError
from lictor.raw import Json, JsonObject

_DISCOVERY = "discovery.k8s.io"
_OWNER = "kubernetes.io/service-name"
_MAX_KNOWN = 256

Place = tuple[str, int]


class ServiceAddresses:
    """Knows the addresses of Services until something about them changes."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, str, int], tuple[Place, ...]] = {}
        self._turn = count()
        for group, plural in (("", "services"), ("", "endpoints"), (_DISCOVERY, "endpointslices")):
            reader.on_change(group, plural, self._known.clear)

    def find(self, namespace: str, name: str, port: int) -> Place:
        """One of the addresses, each in its turn; raises LookupFailedError where there is none."""
        key = (namespace, name, port)
        places = self._known.get(key)
        if places is None:
            places = tuple(self._resolve(*key))
            if not places:
                raise LookupFailedError(f'no endpoints available for service "{name}"')
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = places
        return places[next(self._turn) % len(places)]

    def _resolve(self, namespace: str, name: str, port: int) -> Iterator[Place]:
        service = self._reader.get("", "services", namespace, name)
        if service is None:
            raise LookupFailedError(f'service "{name}" not found')
        spec = read_object(service, "spec")
        if read_text(spec, "type") == "ExternalName":
            yield read_text(spec, "externalName"), port
            return
        word = _name_port(spec, name, port)
        found = [*self._read_slices(namespace, name, word)]
        yield from found or self._read_endpoints(namespace, name, word)

    def _read_slices(self, namespace: str, name: str, word: str) -> Iterator[Place]:
        for each in self._reader.list(_DISCOVERY, "endpointslices", namespace):
            labels = read_object(read_object(each, "metadata"), "labels")
            number = _find_port(read_list(each, "ports"), word)
            if labels.get(_OWNER) != name or number is None:
                continue
            for endpoint in read_list(each, "endpoints"):
                # Nothing said means ready.
                if read_object(endpoint, "conditions").get("ready") is not False:
                    for address in read_list(endpoint, "addresses"):
                        yield str(address), number

    def _read_endpoints(self, namespace: str, name: str, word: str) -> Iterator[Place]:
        endpoints = self._reader.get("", "endpoints", namespace, name)
        for subset in read_list(endpoints, "subsets"):
            number = _find_port(read_list(subset, "ports"), word)
            if number is not None:
                for address in read_list(subset, "addresses"):
                    yield read_text(address, "ip"), number


def _name_port(spec: JsonObject, name: str, port: int) -> str:
    for each in read_list(spec, "ports"):
        if isinstance(each, dict) and each.get("port") == port:
            return read_text(each, "name")
    raise LookupFailedError(f'no service port {port} found for service "{name}"')


def _find_port(ports: list[Json], word: str) -> int | None:
    for each in ports:
        number = each.get("port") if isinstance(each, dict) else None
        if read_text(each, "name") == word and isinstance(number, int):
            return number
    return None
