"""Which parameter objects does a binding of a native policy hand to its policy?"""

from collections.abc import Sequence

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.reading import ObjectReader, read_object
from lictor.errors import EvaluationError
from lictor.lang.entries import MapTest
from lictor.match.selector import compile_selector
from lictor.model.policy import ParamKind, ParamRef
from lictor.raw import JsonObject


class ParamFinder:
    """Finds the objects of one binding in the store."""

    def __init__(self, reader: ObjectReader, kind: ParamKind, ref: ParamRef) -> None:
        self._reader = reader
        self._wanted = kind
        self._ref = ref
        self._fits: MapTest | None = None
        if ref.selector is not None:
            self._fits = compile_selector(ref.selector)

    def find(self, namespace: str) -> Sequence[JsonObject]:
        """The objects for a request in a namespace; EvaluationError where there must be some."""
        kind = self._reader.catalogue.find_kind(self._wanted.api_version, self._wanted.kind)
        if kind is None:
            return ()
        found = self._select(kind, self._find_home(kind, namespace))
        if not found and self._ref.parameter_not_found_action == "Deny":
            raise EvaluationError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        # Objects are kept in one version and shown in the one that was asked for.
        return [{**each, "apiVersion": kind.api_version, "kind": kind.kind} for each in found]

    def _find_home(self, kind: ServedKind, namespace: str) -> str:
        if not kind.namespaced:
            if self._ref.namespace:
                raise EvaluationError(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                )
            return ""
        home = self._ref.namespace or namespace
        if not home:
            raise EvaluationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                "resources"
            )
        return home

    def _select(self, kind: ServedKind, namespace: str) -> list[JsonObject]:
        if self._ref.name:
            found = self._reader.objects.get(kind, namespace, self._ref.name)
            return [] if found is None else [found]
        fits = self._fits
        return [
            each
            for each in self._reader.objects.list(kind, namespace)
            if fits is None or fits(read_object(read_object(each, "metadata"), "labels"))
        ]


def describe_kind(kind: ParamKind) -> str:
    """Such as `rules.example.com/v1, Kind=ReplicaLimit`."""
    return f"{kind.api_version}, Kind={kind.kind}"
