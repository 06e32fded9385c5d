"""All kinds that are served at the moment: built in, and those of CustomResourceDefinitions."""

import re
from collections.abc import Callable, Iterable, Iterator

from lictor.addons.apiserver.decoding import Pruner, explain_mismatch, list_unknown_fields
from lictor.addons.apiserver.field_checks import CheckedField, validate_metadata
from lictor.addons.apiserver.field_errors import Cause, collect_findings
from lictor.addons.apiserver.json_fields import copy_json
from lictor.addons.apiserver.kind import BuiltinResource, ServedKind
from lictor.addons.apiserver.kinds.custom_kind import read_kinds, read_storage_version
from lictor.addons.apiserver.resources.registry import find_resource
from lictor.core.errors import UndecodableObjectError
from lictor.core.facts.facts import KindFacts, load_section, load_served_kinds
from lictor.core.facts.field_types import ANYTHING, find_field_type
from lictor.core.facts.resource_names import builtin_names
from lictor.core.facts.schemas import DEDUCED, Form, find_form
from lictor.core.raw import JsonObject


class BuiltinSchema:
    """One built-in kind. Its form is linked on first use."""

    __slots__ = ("_api_version", "_form", "_kind", "_resource")

    def __init__(self, api_version: str, resource: BuiltinResource) -> None:
        self._api_version = api_version
        self._kind = resource.kind
        self._resource = resource
        self._form: Form | None = None

    @property
    def form(self) -> Form:
        if self._form is None:
            self._form = find_form(self._api_version, self._kind) or DEDUCED
        return self._form

    def list_unknown(self, document: JsonObject) -> list[str]:
        return list_unknown_fields(document, self.form)

    def prune(self, document: JsonObject) -> JsonObject:
        pruner = Pruner()
        place = find_field_type(self._api_version, self._kind) or ANYTHING
        pruned: JsonObject = pruner.prune(document, place)
        # Whether text is base64 is only known after decoding it.
        if pruner.is_suspicious or self._kind == "Secret":
            self._refuse_mismatch(document)
        return pruned

    def _refuse_mismatch(self, document: JsonObject) -> None:
        why = explain_mismatch(self._api_version, self._kind, document)
        if why:
            raise UndecodableObjectError(self._kind, self._api_version.rpartition("/")[2], why)

    def apply_defaults(self, document: JsonObject) -> JsonObject:
        # Webhooks may have written quantities in another form.
        pruned = self.prune(document)
        if self._resource.set_defaults is None:
            return pruned
        filled: JsonObject = copy_json(pruned)
        self._resource.set_defaults(filled)
        return filled

    def validate(
        self, document: JsonObject, old: JsonObject | None, subresource: str = ""
    ) -> list[Cause]:
        resource = self._resource
        part = resource.parts.get(subresource)
        validate = resource.validate if part is None or part.validate is None else part.validate
        causes = validate_metadata(
            document,
            old,
            resource.validate_name,
            takes_any_finalizer=resource.takes_any_finalizer,
        )
        if validate is not None:
            causes += collect_findings(lambda add: validate(CheckedField(document, "", add, old)))
        return causes


_STAGES = ("", "beta", "alpha")
_VERSION = re.compile(r"v(?P<major>\d+)(?:(?P<stage>alpha|beta)(?P<minor>\d+))?", re.ASCII)


class KindCatalogue:
    """Implements `Catalogue`; kinds of CustomResourceDefinitions come and go."""

    def __init__(self, kinds: Iterable[ServedKind], groups: dict[str, tuple[str, ...]]) -> None:
        self._builtin = tuple(kinds)
        self._groups = groups
        # Name of the definition -> its kinds, and the version in which objects are kept.
        self._custom: dict[str, tuple[ServedKind, ...]] = {}
        self._storage: dict[tuple[str, str], str] = {}
        self._by_plural: dict[tuple[str, str, str], ServedKind] = {}
        self._by_kind: dict[tuple[str, str], ServedKind] = {}
        self._listeners: list[Callable[[], None]] = []
        self._index()

    def _index(self) -> None:
        self._by_plural = {(each.group, each.version, each.plural): each for each in self}
        self._by_kind = {(each.api_version, each.kind): each for each in self}

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """The kind that is served there."""
        return self._by_plural.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> ServedKind | None:
        """The same by apiVersion and kind."""
        return self._by_kind.get((api_version, kind))

    def preferred(self, group: str, plural: str) -> ServedKind | None:
        """The version in which objects are kept; any served one where that is not served."""
        stored = self._storage.get((group, plural))
        if stored is not None and (found := self.find(group, stored, plural)):
            return found
        for version in self.versions(group):
            if found := self.find(group, version, plural):
                return found
        return None

    def require(self, group: str, plural: str) -> ServedKind:
        """The same; LookupError if there is no such kind."""
        found = self.preferred(group, plural)
        if found is None:
            raise LookupError(f"no kind {plural} in the group {group!r}")
        return found

    def versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group, the preferred one first; empty where there is no such group."""
        known = self._groups.get(group)
        if known is not None:
            return known
        return sort_versions({each.version for each in self if each.group == group})

    def groups(self) -> list[str]:
        """All groups in the order of discovery; the core group is the empty one."""
        custom = {each.group for kinds in self._custom.values() for each in kinds}
        return [*self._groups, *sorted(custom - self._groups.keys())]

    def __iter__(self) -> Iterator[ServedKind]:
        """All, in the order of discovery."""
        yield from self._builtin
        for _, kinds in sorted(self._custom.items()):
            yield from kinds

    def list_kinds(self, group: str, version: str) -> list[ServedKind]:
        """The kinds of a version of a group."""
        return [each for each in self if (each.group, each.version) == (group, version)]

    def define(self, crd: JsonObject) -> None:
        """Serve the kinds of a CustomResourceDefinition, instead of its earlier ones."""
        name = crd["metadata"]["name"]
        spec = crd["spec"]
        self._custom[name] = read_kinds(crd)
        self._storage[spec["group"], spec["names"]["plural"]] = read_storage_version(crd)
        self._announce()

    def forget(self, name: str) -> None:
        """Serve the kinds of this CustomResourceDefinition no longer."""
        for kind in self._custom.pop(name, ()):
            self._storage.pop((kind.group, kind.plural), None)
        self._announce()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call it whenever kinds came or went."""
        self._listeners.append(listener)

    def _announce(self) -> None:
        self._index()
        for listener in self._listeners:
            listener()

    def convert(self, document: JsonObject, kind: ServedKind) -> JsonObject:
        """The same object in another version of its kind."""
        if document.get("apiVersion") == kind.api_version:
            return document
        converted = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
        return kind.traits.convert(converted) if kind.traits.convert is not None else converted


def sort_versions(versions: Iterable[str]) -> tuple[str, ...]:
    """v2 before v1 before v1beta1 before v1alpha1, and others after them by name."""
    return tuple(sorted(versions, key=_rank))


def _rank(version: str) -> tuple[int, int, int, str]:
    found = _VERSION.fullmatch(version)
    if found is None:
        return len(_STAGES), 0, 0, version
    stage = _STAGES.index(found["stage"] or "")
    return stage, -int(found["major"]), -int(found["minor"] or 0), ""


def build_catalogue() -> KindCatalogue:
    """The catalogue with all built-in kinds."""
    groups = {group: tuple(versions) for group, versions in load_section("groups").items()}
    return KindCatalogue(
        (
            _make_builtin(api_version, kind, facts)
            for api_version, kinds in load_served_kinds().items()
            for kind, facts in kinds.items()
        ),
        groups,
    )


def _make_builtin(api_version: str, kind: str, facts: KindFacts) -> ServedKind:
    group, _, version = api_version.rpartition("/")
    names = builtin_names().of_kind(group, version, kind)
    resource = find_resource(group, kind)
    return ServedKind(
        group=group,
        version=version,
        kind=kind,
        plural=names.resource,
        singular=kind.lower(),
        namespaced=bool(names.namespaced),
        schema=BuiltinSchema(api_version, resource),
        traits=resource,
        short_names=facts.short,
        categories=facts.categories,
        verbs=facts.verbs,
        subresources=facts.subresources,
    )
