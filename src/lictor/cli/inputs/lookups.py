"""Answers what a cluster would answer, from files: values, given resources and image data."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from lictor.cli.inputs.given_answers import GivenAnswers, find_projection, read_context_entry
from lictor.cli.inputs.requests import GivenValues
from lictor.cli.inputs.resources import LazyResources
from lictor.core.errors import LookupFailedError, NotProvidedError, UsageError
from lictor.core.facts.resource_names import ResourceType, builtin_names
from lictor.core.lang.field_mask import ALWAYS_LISTED, compile_field_mask
from lictor.core.lang.label_selector import FieldTerm, parse_field_selector, parse_label_selector
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.model.request import GroupVersionKind
from lictor.core.ports import (
    DEFAULT_ACCESS,
    ApiCall,
    GuestLogLine,
    ObjectQuery,
    Registries,
    RegistryAccess,
    ResourceFacts,
)
from lictor.core.raw import Json, JsonObject

_CORE_PATH = re.compile(r"^/api/(?P<version>[^/]+)/(?P<rest>.+)$")
_GROUP_PATH = re.compile(r"^/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/(?P<rest>.+)$")
_PLURALS = ("ies", "es", "s")
_KIND_PLURALS = {"Endpoints": "endpoints"}


class GivenObjects(msgspec.Struct, frozen=True):
    """The objects in files, by their use."""

    # Objects that mutations may change and generation may copy; None if none were given.
    objects: tuple[JsonObject, ...] | None = None
    # Objects that context entries may read; None without a cluster, real or simulated.
    cluster: tuple[JsonObject, ...] | None = None
    # Image reference -> its image data.
    images: Mapping[str, JsonObject] = msgspec.field(default_factory=dict)
    # For other images, and for signatures; None if registries are not used.
    registries: Registries | None = None
    # Parameters of admission policies.
    params: tuple[JsonObject, ...] = ()
    # Definitions of custom resources.
    crds: tuple[JsonObject, ...] = ()
    # The resource types of a cluster; None without a cluster.
    served: tuple[ResourceType, ...] | None = None
    # The resources of this run: they answer lookups that nothing else does.
    evaluated: LazyResources | None = None
    # Responses of services and data of global context entries.
    answers: GivenAnswers = GivenAnswers()
    # The release whose CEL admission policies use; None: the newest.
    kubernetes_version: tuple[int, int] | None = None

    def others(self, word: str, *, ignore_case: bool = False) -> Sequence[JsonObject]:
        """Return the other resources of this run that contain a word."""
        if self.evaluated is None:
            return ()
        return self.evaluated.others(word.encode(), ignore_case=ignore_case)


class OfflineLookups:
    """Looks up objects in files. Without given objects, cluster lookups have no answer."""

    def __init__(self, values: GivenValues, given: GivenObjects | None = None) -> None:
        self._values = values
        self._given = given or GivenObjects()

    def config_map(self, namespace: str, name: str) -> JsonObject:
        known = (*(self._given.cluster or ()), *self._given.others("ConfigMap"))
        for found in _select(known, "v1", "ConfigMap", namespace):
            if _metadata(found).get("name") == name:
                return found
        if self._given.cluster is None:
            raise NotProvidedError(f"ConfigMap {namespace}/{name} was not given")
        raise LookupFailedError(f"failed to get configmap {namespace}/{name} : not found")

    def call_api(self, call: ApiCall) -> Json:
        answer = self._given.answers.answer(call)
        if answer is not None:
            return answer
        cluster = self._given.cluster
        is_service = bool(call.service_url) or call.method != "GET"
        if cluster is not None and is_service:
            raise LookupFailedError(f"no service to call offline: {call.service_url}")
        path = "" if is_service else call.url_path
        known = (*(cluster or ()), *self._list_others(path))
        try:
            return _answer_path(path, known)
        except LookupFailedError as error:
            if cluster is not None:
                raise
            # An object that was not given may still exist in a cluster.
            wanted = call.url_path or call.service_url
            raise NotProvidedError(f"no cluster to query for {wanted}") from error

    def _list_others(self, url_path: str) -> Sequence[JsonObject]:
        """Return the resources of this run that may be of the kind of a path."""
        found = _parse_path(url_path)
        if found is None or not found.plural:
            return ()
        named = builtin_names().of_resource(found.group, found.version, found.plural)
        if named is not None and guess_plural(named.kind) == found.plural:
            return self._given.others(named.kind)
        # A plural ends in s, es or ies; the capital letters of the kind are unknown.
        ending = next((each for each in _PLURALS if found.plural.endswith(each)), "")
        return self._given.others(found.plural.removesuffix(ending), ignore_case=True)

    def global_reference(self, name: str) -> Json:
        entry, _, projection = name.partition(".")
        if entry in self._given.answers.entries:
            return find_projection(self._given.answers.entries, name)
        for found in (*self._list_own(), *self._given.others("GlobalContextEntry")):
            spec = found.get("spec")
            is_entry = GroupVersionKind.of(str(found.get("apiVersion")), str(found.get("kind")))
            if (
                (is_entry.group, is_entry.kind) == ("kyverno.io", "GlobalContextEntry")
                and _metadata(found).get("name") == entry
                and isinstance(spec, dict)
                and isinstance(spec.get("kubernetesResource"), dict)
            ):
                return read_context_entry(spec, self._select_entry, projection)
        raise NotProvidedError(f"global context entry {entry} was not given")

    def _list_own(self) -> Iterable[JsonObject]:
        """The objects that were given beside what is evaluated, each once."""
        known = (*(self._given.objects or ()), *(self._given.cluster or ()))
        return {id(each): each for each in known}.values()

    def _select_entry(self, resource: JsonObject) -> Iterator[JsonObject]:
        """The given objects of the kind that a GlobalContextEntry names."""
        group, version, plural, namespace = (
            str(resource.get(name) or "") for name in ("group", "version", "resource", "namespace")
        )
        path = f"/apis/{group}/{version}/{plural}" if group else f"/api/{version}/{plural}"
        for found in (*self._list_own(), *self._list_others(path)):
            place = _metadata(found).get("namespace")
            if _is_of(found, group, version, plural) and (not namespace or place == namespace):
                yield found

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_given_image(self._given, reference, access)

    def registries(self) -> Registries:
        return choose_given(self._given)

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        if (api_version, kind) == ("v1", "Namespace"):
            given = self._values.namespace(name)
            given = given or _find_name(self._given.others(kind), api_version, kind, name)
            if given is not None:
                return given
        for found in self.resources(api_version, kind, namespace):
            if _metadata(found).get("name") == name:
                return found
        return None

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        objects, cluster = self._given.objects, self._given.cluster
        if objects is None and cluster is None:
            raise NotProvidedError(f"no {api_version} {kind} was given")
        known = (*(objects or ()), *(cluster or ()))
        return list(_select(known, api_version, kind, namespace))

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        return _select_given(self.resources(query.api_version, query.kind, query.namespace), query)

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        group, _, version = api_version.rpartition("/")
        found = builtin_names().with_crds(self._given.crds).of_kind(group, version, kind)
        if found.guessed or found.namespaced is None:
            raise NotProvidedError(
                f"unknown whether {kind} of {api_version} is namespaced: give its "
                "CustomResourceDefinition"
            )
        return ResourceFacts(found.resource, found.namespaced)

    def resolve_host(self, host: str) -> tuple[str, ...]:
        raise NotProvidedError(f"no addresses were given for {host[:253]}")

    def log_line(self, line: GuestLogLine) -> None:
        """Commands print verdicts, and no logs."""

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule, index)

    def now(self) -> datetime:
        return datetime.now(UTC)


def _find_name(
    known: Iterable[JsonObject], api_version: str, kind: str, name: str
) -> JsonObject | None:
    named = (each for each in known if _metadata(each).get("name") == name)
    return next(_select(named, api_version, kind, ""), None)


def _select_given(given: Iterable[JsonObject], query: ObjectQuery) -> tuple[JsonObject, ...]:
    """Select the objects and fields of a query."""
    labels = parse_label_selector(query.label_selector)
    fields = _read_fields(query.field_selector)
    mask = compile_field_mask(query.field_masks, always=ALWAYS_LISTED)
    found = [
        mask(each) if query.field_masks else each
        for each in map(_drop_managed_fields, given)
        if labels(_metadata(each).get("labels") or {}) and _fits_fields(_metadata(each), fields)
    ]
    return tuple(sorted(found, key=lambda each: [_read_name(_metadata(each), n) for n in _PLACE]))


_PLACE = ("namespace", "name")


def _read_fields(selector: str) -> list[FieldTerm]:
    """Parse a field selector; only a cluster knows the other selectable fields of a kind."""
    terms = list(parse_field_selector(selector))
    for term in terms:
        if term.field.removeprefix("metadata.") not in _PLACE:
            raise NotProvidedError(
                f"objects from files are selected by metadata.name and metadata.namespace, not by "
                f"{term.field[:200]!r}"
            )
    return terms


def _fits_fields(metadata: JsonObject, terms: list[FieldTerm]) -> bool:
    return all(
        (_read_name(metadata, term.field.removeprefix("metadata.")) == term.value) is term.is_equal
        for term in terms
    )


def _read_name(metadata: JsonObject, name: str) -> str:
    return str(metadata.get(name) or "")


def _drop_managed_fields(given: JsonObject) -> JsonObject:
    metadata = _metadata(given)
    if "managedFields" not in metadata:
        return given
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**given, "metadata": kept}


# A run resolves each tag once.
_TAG_SECONDS = 600.0


def choose_registries(*, network: bool, layout: str = "") -> Registries | None:
    """Return the source of images for one run: a folder, registries, or None."""
    if network and layout:
        raise UsageError("--registry and --image-layout: the folder replaces registries")
    if layout:
        from lictor.images.layout import OciLayout

        return OciLayout(Path(layout))
    if not network:
        return None
    from lictor.http.addresses import OPERATOR_RULES
    from lictor.images.registries import RemoteRegistries
    from lictor.images.settings import RegistrySettings

    return RemoteRegistries(RegistrySettings(tag_seconds=_TAG_SECONDS, addresses=OPERATOR_RULES))


def choose_given(given: GivenObjects) -> Registries:
    """Return the registries that may be queried. Raises NotProvidedError if there are none."""
    if given.registries is None:
        raise NotProvidedError(
            "no registry to query: give --registry, or a folder with --image-layout DIR"
        )
    return given.registries


def describe_given_image(given: GivenObjects, reference: str, access: RegistryAccess) -> JsonObject:
    """Return the given data of an image, or else those of its registry."""
    found = given.images.get(reference)
    if found is not None:
        return found
    if given.registries is None:
        raise NotProvidedError(f"no registry to query for {reference}")
    from lictor.images.image_data import describe_image

    return describe_image(given.registries, reference, access)


def guess_plural(kind: str) -> str:
    """The resource name of a kind, as Kubernetes' own tools guess it."""
    if kind in _KIND_PLURALS:
        return _KIND_PLURALS[kind]
    name = kind.lower()
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in set("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def _select(
    known: Iterable[JsonObject], api_version: str, kind: str, namespace: str
) -> Iterator[JsonObject]:
    """The objects of a kind; group, version and kind may be wildcards."""
    group, _, version = api_version.rpartition("/")
    # A star alone is any version of any group.
    group = "*" if api_version in ("", "*") else group
    fits = [compile_wildcard(part) for part in (group, version or "*", kind)]
    for found in known:
        own = GroupVersionKind.of(str(found.get("apiVersion")), str(found.get("kind")))
        names = (own.group, own.version, own.kind)
        if not all(test(name) for test, name in zip(fits, names, strict=True)):
            continue
        if not namespace or _metadata(found).get("namespace", "default") == namespace:
            yield found


def _metadata(resource: JsonObject) -> JsonObject:
    found = resource.get("metadata")
    return found if isinstance(found, dict) else {}


class _ApiPath(msgspec.Struct, frozen=True):
    """What a path of the Kubernetes API names; no name means all of them."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str


def _parse_path(url_path: str) -> _ApiPath | None:
    path = urlsplit(url_path).path
    found = _CORE_PATH.match(path) or _GROUP_PATH.match(path)
    if found is None:
        return None
    named = found.groupdict()
    rest = _split_rest([unquote(n) for n in named["rest"].split("/") if n])
    return _ApiPath(named.get("group") or "", named["version"], *rest)


def _answer_path(url_path: str, resources: Sequence[JsonObject]) -> Json:
    wanted = _parse_path(url_path)
    if wanted is None:
        raise LookupFailedError(f"{url_path} is not a path of the Kubernetes API")
    namespace = wanted.namespace
    of_kind = [r for r in resources if _is_of(r, wanted.group, wanted.version, wanted.plural)]
    kept = [r for r in of_kind if not namespace or _metadata(r).get("namespace") == namespace]
    if wanted.name:
        return _find_named(kept, wanted.name, url_path)
    if not of_kind:
        raise LookupFailedError(f"nothing was given for {url_path}")
    return _make_list(kept, of_kind[0])


def _split_rest(names: list[str]) -> tuple[str, str, str]:
    if names[:1] == ["namespaces"] and len(names) > 2:
        return names[1], names[2], names[3] if len(names) > 3 else ""
    return "", names[0] if names else "", names[1] if len(names) > 1 else ""


def _is_of(resource: JsonObject, group: str, version: str, plural: str) -> bool:
    kind = GroupVersionKind.of(str(resource.get("apiVersion")), str(resource.get("kind")))
    return (kind.group, kind.version) == (group, version) and guess_plural(kind.kind) == plural


def _find_named(resources: list[JsonObject], name: str, url_path: str) -> JsonObject:
    for found in resources:
        if _metadata(found).get("name") == name:
            return found
    raise LookupFailedError(f"not found: {url_path}")


def _make_list(items: list[JsonObject], example: JsonObject) -> JsonObject:
    return {
        "apiVersion": example.get("apiVersion"),
        "kind": f"{example.get('kind')}List",
        "metadata": {"resourceVersion": ""},
        "items": items,
    }
