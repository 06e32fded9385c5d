"""Matches requests against `matchConstraints` of CEL policies and `matchResources` of bindings.

These name resources (`pods`), requests here name kinds (`Pod`): `ResourceNames` maps both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames, ResourceType, guess_plurals
from lictor.core.lang.watch import Watch, unwatched
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.match.combine import (
    NAME_LABEL,
    Clause,
    RequestClass,
    always,
    every,
    is_namespaced,
    negate,
    never,
    read_place,
    read_requested,
    remember,
    settle_all,
    settled,
    some,
)
from lictor.core.match.metadata import clean_map, compile_selector, read_map, read_text
from lictor.core.model.constraints import MatchResources, ResourceRule
from lictor.core.model.metadata import LabelSelector
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation, Request


def compile_label_clauses(
    constraints: MatchResources, names: ResourceNames, where: str
) -> Iterator[tuple[str, Clause]]:
    """Yield a clause for each selector of the author, with its path.

    Raises CompileError for a selector that Kubernetes rejects.
    """
    selector = constraints.namespace_selector
    if selector is not None and selector != LabelSelector():
        path = f"{where}.namespaceSelector"
        yield path, _match_namespace_labels(_check_selector(selector, path), names)
    selector = constraints.object_selector
    if selector is not None and selector != LabelSelector():
        path = f"{where}.objectSelector"
        yield path, settle_all(_match_labels(_check_selector(selector, path)))


def find_labelled_namespaces(
    constraints: MatchResources, names: ResourceNames
) -> frozenset[str] | None:
    """The namespaces that the namespace selector names, if it cannot match anything else.

    Cluster-scoped objects match any selector: the names count only if all resources are known
    to be namespaced.
    """
    selector, rules = constraints.namespace_selector, constraints.resource_rules
    if selector is None or not rules or not all(_are_namespaced(rule, names) for rule in rules):
        return None
    value = selector.match_labels.get(NAME_LABEL)
    if value is not None:
        return frozenset((value,))
    for each in selector.match_expressions:
        if each.key == NAME_LABEL and each.operator == "In":
            return frozenset(each.values)
    return None


def _are_namespaced(rule: ResourceRule, names: ResourceNames) -> bool:
    """Whether all resources of a rule are literal, and known to be namespaced."""
    for group in rule.api_groups:
        for version in rule.api_versions:
            for resource in rule.resources:
                found = names.of_resource(group, version, resource)
                if found is None or found.namespaced is not True:
                    return False
    return True


def _check_selector(selector: LabelSelector, where: str) -> LabelSelector:
    """Reject what the API server rejects; wildcards are for classic policies only."""
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
    asks_name = NAME_LABEL in selector.match_labels or any(
        each.key == NAME_LABEL for each in selector.match_expressions
    )

    def fits_labels(name: str, labels: Mapping[str, str]) -> bool:
        if asks_name and NAME_LABEL not in labels:
            labels = {**labels, NAME_LABEL: name}
        return fits(labels)

    def fits_itself(request: Request) -> bool:
        return fits_labels(read_requested(request, "name"), read_map(request.resource, "labels"))

    def fits_namespace(request: Request) -> bool:
        namespace = read_requested(request, "namespace")
        # A cluster-scoped object is never excluded by a namespace selector.
        return not namespace or fits_labels(namespace, clean_map(request.namespace_labels))

    def settle(requests: RequestClass) -> Matcher:
        kind = requests.kind
        if kind.kind == "Namespace" and not kind.group:
            return fits_itself
        return always if is_namespaced(requests, names) is False else fits_namespace

    return settle


# Does the rule name the resource with this group, version, name and subresource?
PlaceTest: TypeAlias = Callable[[str, str, str, str], bool]

_GUARDS = frozenset(
    [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]
)


def is_exempt(kind: GroupVersionKind) -> bool:
    """Whether Kubernetes exempts this kind, so that a policy cannot block its own repair."""
    return kind.group == "admissionregistration.k8s.io" and kind.kind in _GUARDS


def spare_guards(select: Select) -> Select:
    """The selection without the kinds of `is_exempt`, evaluated once per class."""

    def spared(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        return None if is_exempt(kind) else select(kind, subresource, operation)

    return remember(spared)


def compile_constraints(
    constraints: MatchResources,
    names: ResourceNames,
    *,
    where: str = "matchConstraints",
    watch: Watch = unwatched,
) -> Select:
    """Join all constraints, evaluated as far as a class of requests allows.

    Each one is traced under its path, such as `matchConstraints.resourceRules[0].operations`; the
    closures of `excludeResourceRules` return True if the request is excluded.
    """
    options = _ConstraintOptions(names, constraints.match_policy == "Equivalent", watch)
    clause = _compile_all(constraints, where, options)

    def select(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        matcher = clause(RequestClass(kind, subresource, operation))
        return None if matcher is never else matcher

    return select


class _ConstraintOptions(msgspec.Struct, frozen=True):
    """What is the same for all rules of one policy."""

    names: ResourceNames
    # Whether a rule for one version also matches the versions that the API server can convert to.
    equivalent: bool
    watch: Watch


def _compile_all(constraints: MatchResources, where: str, options: _ConstraintOptions) -> Clause:
    watch = options.watch
    wanted = _compile_rules(constraints.resource_rules, f"{where}.resourceRules", options)
    unwanted = _compile_rules(
        constraints.exclude_resource_rules, f"{where}.excludeResourceRules", options
    )
    selectors = tuple(compile_label_clauses(constraints, options.names, where))
    if not constraints.resource_rules:
        # No rules match everything, as in the API server.
        wanted = settle_all(always)

    def settle(requests: RequestClass) -> Matcher:
        tests = [watch(path, clause(requests)) for path, clause in selectors]
        return watch(where, every([wanted(requests), negate(unwanted(requests)), *tests]))

    return settle


# --- resource rules


def _compile_rules(
    rules: Iterable[ResourceRule], where: str, options: _ConstraintOptions
) -> Clause:
    parts = [_compile_rule(rule, f"{where}[{index}]", options) for index, rule in enumerate(rules)]
    return lambda requests: some([part(requests) for part in parts])


def _compile_rule(rule: ResourceRule, where: str, options: _ConstraintOptions) -> Clause:
    watch = options.watch
    clauses = [
        (f"{where}.operations", _match_operations(rule)),
        (f"{where}.resources", _match_places(_compile_place(rule, options), options.names)),
    ]
    if rule.scope != "*":
        clauses.append((f"{where}.scope", _match_scope(rule, options.names)))
    if rule.resource_names:
        clauses.append((f"{where}.resourceNames", settle_all(_match_names(rule))))

    def settle(requests: RequestClass) -> Matcher:
        return watch(where, every([watch(path, clause(requests)) for path, clause in clauses]))

    return settle


def _match_operations(rule: ResourceRule) -> Clause:
    operations = frozenset(rule.operations)
    whole = "*" in operations
    return lambda requests: settled(answer=whole or requests.operation in operations)


def _compile_place(rule: ResourceRule, options: _ConstraintOptions) -> PlaceTest:
    has_group = _compile_words(rule.api_groups)
    has_version = _compile_words(rule.api_versions)
    has_resource = _compile_resources(rule.resources)

    def fits(group: str, version: str, resource: str, subresource: str) -> bool:
        if not has_resource(resource, subresource):
            return False
        if has_group(group) and has_version(version):
            return True
        return options.equivalent and any(
            has_group(other_group) and has_version(other_version)
            for other_group, other_version in options.names.equivalents(group, version, resource)
        )

    return fits


def _compile_words(words: tuple[str, ...]) -> Callable[[str], bool]:
    if "*" in words:
        return lambda _: True
    return frozenset(words).__contains__


def _compile_resources(resources: tuple[str, ...]) -> Callable[[str, str], bool]:
    parts = [(name, subresource) for name, _, subresource in (r.partition("/") for r in resources)]

    def fits(resource: str, subresource: str) -> bool:
        return any(
            name in ("*", resource) and wanted in ("*", subresource) for name, wanted in parts
        )

    return fits


def _match_places(fits: PlaceTest, names: ResourceNames) -> Clause:
    def settle(requests: RequestClass) -> Matcher:
        kind, subresource = requests.kind, requests.subresource
        targets = names.targets(kind.group, kind.version, kind.kind, subresource)
        answer = any(fits(*place, subresource) for each in targets for place in _places(each))
        if len(targets) == 1 and not targets[0].guessed:
            return settled(answer=answer)

        def matches(request: Request) -> bool:
            # If an API server sent the resource, there is no need to guess.
            place = read_place(request)
            return answer if place is None else fits(*place, subresource)

        return matches

    return settle


def _places(target: ResourceType) -> Iterator[tuple[str, str, str]]:
    """The possible names of the resource."""
    resources = guess_plurals(target.kind) if target.guessed else (target.resource,)
    for resource in resources:
        yield target.group, target.version, resource


def _match_scope(rule: ResourceRule, names: ResourceNames) -> Clause:
    wanted = rule.scope == "Namespaced"

    def settle(requests: RequestClass) -> Matcher:
        namespaced = is_namespaced(requests, names)
        if namespaced is not None:
            return settled(answer=namespaced is wanted)
        return lambda request: bool(read_requested(request, "namespace")) is wanted

    return settle


def _match_names(rule: ResourceRule) -> Matcher:
    names = frozenset(rule.resource_names)

    def matches(request: Request) -> bool:
        name = read_requested(request, "name")
        if name:
            return name in names
        # The API server has not chosen a name yet: it will start with the given prefix.
        return read_text(request.resource, "generateName").startswith(rule.resource_names)

    return matches
