"""Do the labels fit? The `namespaceSelector` and the `objectSelector` of a CEL policy."""

from collections.abc import Iterator, Mapping

from lictor.errors import CompileError
from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.wildcard import has_wildcard
from lictor.match.combine import Clause, RequestClass, always, settle_all
from lictor.match.metadata import clean_map, read_map
from lictor.match.selector import compile_selector
from lictor.match.target import is_namespaced, read_told
from lictor.model.constraints import MatchResources
from lictor.model.metadata import LabelSelector
from lictor.model.program import Matcher
from lictor.model.request import Request

# The label that the API server puts on every namespace.
_NAME_LABEL = "kubernetes.io/metadata.name"


def compile_label_clauses(
    constraints: MatchResources, names: ResourceNames, where: str
) -> Iterator[tuple[str, Clause]]:
    """Give a clause for each selector that the author wrote, with its path.

    Raises CompileError for a selector that Kubernetes would refuse.
    """
    selector = constraints.namespace_selector
    if selector is not None and selector != LabelSelector():
        path = f"{where}.namespaceSelector"
        yield path, _match_namespace_labels(_check_selector(selector, path), names)
    selector = constraints.object_selector
    if selector is not None and selector != LabelSelector():
        path = f"{where}.objectSelector"
        yield path, settle_all(_match_labels(_check_selector(selector, path)))


def _check_selector(selector: LabelSelector, where: str) -> LabelSelector:
    """Refuse what the API server refuses, and say where; wildcards are for classic policies."""
    for key, value in selector.match_labels.items():
        if has_wildcard(key) or has_wildcard(value):
            raise CompileError(f'no object can have the label "{key}: {value}"', where=where)
    try:
        compile_selector(selector)
    except CompileError as error:
        raise CompileError(error.message, where=where) from error
    return selector


def _match_labels(selector: LabelSelector) -> Matcher:
    fits = compile_selector(selector)

    def matches(request: Request) -> bool:
        new, old = request.object, request.old_object
        return (new is not None and fits(read_map(new, "labels"))) or (
            old is not None and fits(read_map(old, "labels"))
        )

    return matches


def _match_namespace_labels(selector: LabelSelector, names: ResourceNames) -> Clause:
    fits = compile_selector(selector)
    asks_name = _NAME_LABEL in selector.match_labels or any(
        each.key == _NAME_LABEL for each in selector.match_expressions
    )

    def fits_labels(name: str, labels: Mapping[str, str]) -> bool:
        if asks_name and _NAME_LABEL not in labels:
            labels = {**labels, _NAME_LABEL: name}
        return fits(labels)

    def fits_itself(request: Request) -> bool:
        return fits_labels(read_told(request, "name"), read_map(request.resource, "labels"))

    def fits_namespace(request: Request) -> bool:
        namespace = read_told(request, "namespace")
        # What lies in no namespace is never spared because of one.
        return not namespace or fits_labels(namespace, clean_map(request.namespace_labels))

    def settle(requests: RequestClass) -> Matcher:
        kind = requests.kind
        if kind.kind == "Namespace" and not kind.group:
            return fits_itself
        return always if is_namespaced(requests, names) is False else fits_namespace

    return settle
