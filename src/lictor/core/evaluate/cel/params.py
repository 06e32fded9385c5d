"""Finds the parameter objects of a binding or a classic rule."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.views import namespace_of
from lictor.core.evaluate.namespace_bounds import check_namespace
from lictor.core.lang.label_selector import MapTest
from lictor.core.match.metadata import compile_selector, read_map, read_text
from lictor.core.model.policy import ParamKind, ParamRef
from lictor.core.model.request import Request
from lictor.core.raw import JsonObject

# The objects; none if the policy is to be skipped without parameters.
FindParams: TypeAlias = Callable[[Request], tuple[JsonObject, ...]]


class ParamMessages(msgspec.Struct, frozen=True):
    """The messages for parameters that cannot be found, as Kyverno has them."""

    missing: str = "no params found"
    unscoped: str = "can't use namespaced paramRef to match cluster-scoped resources"


def compile_params(
    kind: ParamKind,
    ref: ParamRef,
    around: CelContext,
    own: str = "",
    messages: ParamMessages = ParamMessages(),  # noqa: B008  (frozen)
) -> FindParams:
    """The objects that a reference selects; raises EvaluationError if a required one is missing.

    `own` is the namespace of a namespaced policy: its parameters are there.
    """
    finder = _Finder(kind, ref, around, messages)
    fits = None if ref.selector is None else compile_selector(ref.selector)

    def find(request: Request) -> tuple[JsonObject, ...]:
        namespace = finder.namespace(request)
        if own:
            check_namespace(namespace, own, "what params refers to")
        found = tuple(finder.find(namespace, fits))
        if not found and ref.parameter_not_found_action != "Allow":
            raise EvaluationError(messages.missing)
        return found

    return find


class _Finder(msgspec.Struct, frozen=True):
    kind: ParamKind
    ref: ParamRef
    around: CelContext
    messages: ParamMessages

    def namespace(self, request: Request) -> str:
        """The reference's namespace, otherwise that of the request."""
        group, _, version = self.kind.api_version.rpartition("/")
        resource = self.around.resource_names.of_kind(group, version, self.kind.kind)
        if resource.namespaced is False:
            if self.ref.namespace:
                raise EvaluationError(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                )
            return ""
        namespace = self.ref.namespace or namespace_of(request)
        if not namespace and resource.namespaced:
            raise EvaluationError(self.messages.unscoped)
        return namespace

    def find(self, namespace: str, fits: MapTest | None) -> Iterator[JsonObject]:
        if self.ref.name and self.around.params is None:
            found = self._get(namespace)
            return iter(() if found is None else (found,))
        return (
            each
            for each in self._list(namespace)
            if not self.ref.name or read_text(each, "name") == self.ref.name
            if fits is None or fits(read_map(each, "labels"))
        )

    def _get(self, namespace: str) -> JsonObject | None:
        kind = self.kind
        return self.around.lookups.resource(kind.api_version, kind.kind, namespace, self.ref.name)

    def _list(self, namespace: str) -> Iterable[JsonObject]:
        kind, given = self.kind, self.around.params
        if given is None:
            return self.around.lookups.resources(kind.api_version, kind.kind, namespace)
        return (
            each
            for each in given
            if (each.get("apiVersion"), each.get("kind")) == (kind.api_version, kind.kind)
            # A file may omit the namespace, as with kubectl.
            if not namespace or read_text(each, "namespace") in ("", namespace)
        )
