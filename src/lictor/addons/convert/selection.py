"""`match` and `exclude` of a rule as resource rules and conditions in CEL."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Atom,
    SettledTest,
    Test,
    all_of,
    any_of,
    choose,
    compare,
    for_some,
    negate,
)
from lictor.addons.convert.cel_values import CelValue, ResourceRoot
from lictor.addons.convert.scalar import match_text
from lictor.addons.convert.writing import literal
from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames, ResourceType
from lictor.core.facts.schemas import find_form
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.model.matching import Match, ResourceDescription, ResourceFilter
from lictor.core.model.matching import Subject as Caller
from lictor.core.model.metadata import LabelRequirement, LabelSelector
from lictor.core.model.policy import Rule
from lictor.core.raw import JsonObject

# Groups in which a kind is looked for that is named without one; the newer name of a thing first.
_GROUPS = (
    "", "apps", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "autoscaling",
    "storage.k8s.io", "apiextensions.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io",
    "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "node.k8s.io",
    "certificates.k8s.io", "flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io",
    "authentication.k8s.io", "authorization.k8s.io", "resource.k8s.io", "extensions",
)  # fmt: skip
_VERSIONS = ("v1", "v2", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v2beta2")
_EPHEMERAL = "ephemeralcontainers"


class ResolvedKind(msgspec.Struct, frozen=True):
    """One kind, named as the API server names it."""

    group: str
    version: str
    resource: str
    kind: str
    subresource: str = ""
    namespaced: bool | None = None
    guessed: bool = False

    @property
    def path(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def api_version(self) -> str:
        """A version in which objects of the kind can be written."""
        version = self.version
        if version == "*":
            version = _find_version(self.group, self.kind) or "v1"
        group = "example.com" if self.group == "*" else self.group
        return f"{group}/{version}" if group else version


def find_kinds(
    kinds: Iterable[str], names: ResourceNames, groups: Iterable[str]
) -> list[ResolvedKind]:
    """What the kinds of a filter mean; CompileError where that has no equivalent."""
    found: list[ResolvedKind] = []
    for text in kinds:
        meant = _find(parse_kind_selector(text), text, names, (*groups, *_GROUPS))
        found.append(meant)
        if meant.kind == "Pod" and not meant.group and not meant.subresource:
            # Kyverno takes a Pod's ephemeral containers for a part of the Pod.
            found.append(msgspec.structs.replace(meant, subresource=_EPHEMERAL))
    return list(dict.fromkeys(found))


def _find(
    selector: KindSelector, text: str, names: ResourceNames, groups: tuple[str, ...]
) -> ResolvedKind:
    if selector.kind == "*" and selector.subresource in ("", "*"):
        path = "*" if not selector.subresource else "*/*"
        return ResolvedKind(selector.group, selector.version, path, "*")
    if has_wildcard(selector.kind) or has_wildcard(selector.subresource):
        raise CompileError(f"the wildcard in the kind {text!r} has no equivalent")
    if selector.group == "*":
        return _find_bare(selector, names, groups)
    if has_wildcard(selector.group):
        raise CompileError(f"the wildcard in the group of {text!r} has no equivalent")
    known = names.of_kind(selector.group, _plain_version(selector), selector.kind)
    return _meant(known, selector.version, selector)


def _find_bare(
    selector: KindSelector, names: ResourceNames, groups: tuple[str, ...]
) -> ResolvedKind:
    for group in groups:
        known = names.of_kind(group, _plain_version(selector), selector.kind)
        if not known.guessed:
            version = selector.version
            if version == "*" and group in _GROUPS:
                # Other versions of Kubernetes' own kinds are turned into this one.
                version = _find_version(group, selector.kind) or "*"
            return _meant(known, version, selector)
    guess = names.of_kind("*", _plain_version(selector), selector.kind)
    return _meant(guess, selector.version, selector)


def _plain_version(selector: KindSelector) -> str:
    return "v1" if has_wildcard(selector.version) else selector.version


def _find_version(group: str, kind: str) -> str:
    for version in _VERSIONS:
        if find_form(f"{group}/{version}" if group else version, kind) is not None:
            return version
    return ""


def _meant(known: ResourceType, version: str, selector: KindSelector) -> ResolvedKind:
    if has_wildcard(version) and version != "*":
        raise CompileError(f"the wildcard in the version {version!r} has no equivalent")
    return ResolvedKind(
        known.group,
        version,
        known.resource,
        selector.kind,
        selector.subresource,
        known.namespaced,
        known.guessed,
    )


def resource_rules(
    kinds: Iterable[ResolvedKind], operations: Iterable[str]
) -> list[dict[str, list[str]]]:
    """The kinds as `resourceRules`, one for each group and version."""
    rules: dict[tuple[str, str], list[str]] = {}
    for meant in kinds:
        resources = rules.setdefault((meant.group, meant.version), [])
        if meant.path not in resources:
            resources.append(meant.path)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(operations),
            "resources": resources,
        }
        for (group, version), resources in rules.items()
    ]


_USER = "request.userInfo.username"


class RuleSelection(msgspec.Struct, frozen=True):
    """Which requests a rule matches, without its conditions."""

    kinds: tuple[ResolvedKind, ...]
    operations: tuple[str, ...]
    namespace_selector: JsonObject | None = None


def select(rule: Rule, names: ResourceNames, groups: Iterable[str]) -> RuleSelection:
    """The kinds and operations of a rule; CompileError where they have no equivalent."""
    filters = _filters(rule.match)
    kinds = [kind for each in filters for kind in find_kinds(each.resources.kinds, names, groups)]
    if not kinds:
        raise CompileError("a rule that names no kinds")
    return RuleSelection(
        tuple(dict.fromkeys(kinds)),
        tuple(dict.fromkeys(op for each in filters for op in each.resources.operations))
        if all(each.resources.operations for each in filters)
        else (),
        _namespace_selector(filters, kinds),
    )


def _filters(match: Match) -> tuple[ResourceFilter, ...]:
    if match.any or match.all:
        return match.any or match.all
    return (ResourceFilter(match.resources, match.subjects, match.roles, match.cluster_roles),)


def _namespace_selector(
    filters: tuple[ResourceFilter, ...], kinds: list[ResolvedKind]
) -> JsonObject | None:
    selectors = [each.resources.namespace_selector for each in filters]
    first = selectors[0]
    if all(selector is None for selector in selectors):
        return None
    if any(selector != first for selector in selectors) or first is None:
        raise CompileError("filters with different namespaceSelectors")
    if any(kind.kind in ("Namespace", "*") or kind.namespaced is False for kind in kinds):
        raise CompileError("a namespaceSelector for cluster-scoped kinds")
    texts = (*first.match_labels, *first.match_labels.values())
    if any(has_wildcard(text) for text in texts):
        raise CompileError("wildcards in a namespaceSelector have no equivalent")
    selected: JsonObject = msgspec.to_builtins(first)
    return selected


def translate_match(rule: Rule, kinds: Iterable[ResolvedKind], subject: ResourceRoot) -> Test:
    """The remaining test for a request of the right kind."""
    wanted = _Filters(subject, frozenset(kind.kind for kind in kinds))
    unwanted = FALSE if rule.exclude is None else wanted.excluded(rule.exclude)
    return all_of((wanted.matched(rule.match), negate(unwanted)))


def translate_match_for(
    rule: Rule,
    kinds: Iterable[ResolvedKind],
    subject: ResourceRoot,
    operations: Iterable[str],
) -> Test:
    """The same where only these operations come; without them where they make no difference."""
    # A controller is matched by its own name and labels, not by those of its Pods.
    outer, given = replace(subject, pod=None), tuple(kinds)
    return build_for(
        operations, lambda each: translate_match(rule, given, replace(outer, operation=each))
    )


def build_for(operations: Iterable[str], build: Callable[[str], Test]) -> Test:
    """A test for these operations; without the operation where it makes no difference."""
    made = [build(operation) for operation in operations]
    return made[0] if all(test == made[0] for test in made) else build("")


class _Filters(msgspec.Struct, frozen=True):
    subject: ResourceRoot
    kinds: frozenset[str]

    def matched(self, match: Match) -> Test:
        filters = _filters(match)
        join = all_of if match.all and not match.any else any_of
        return join(self._one(each, forgiving=True) for each in filters)

    def excluded(self, exclude: Match) -> Test:
        filters = [each for each in _filters(exclude) if each != ResourceFilter()]
        join = all_of if exclude.all and not exclude.any else any_of
        if not filters:
            return FALSE
        return join(self._one(each, forgiving=False) for each in filters)

    def _one(self, wanted: ResourceFilter, *, forgiving: bool) -> Test:
        if wanted.roles or wanted.cluster_roles:
            raise CompileError(
                "roles and clusterRoles: Kyverno finds them in bindings, CEL does not know them"
            )
        callers = self._callers(wanted.subjects, forgiving=forgiving)
        return all_of((*self._resource(wanted.resources, forgiving=forgiving), callers))

    def _resource(self, wanted: ResourceDescription, *, forgiving: bool) -> Iterable[Test]:
        yield self._kind(wanted)
        if wanted.operations and self.subject.operation:
            yield SettledTest(self.subject.operation in wanted.operations)
        elif wanted.operations:
            yield Atom(f"request.operation in {literal(list(wanted.operations))}")
        for names in ((wanted.name,) if wanted.name else (), wanted.names):
            if names:
                yield self._named(names)
        if wanted.namespaces:
            yield self._in_namespaces(wanted.namespaces)
        for key, value in wanted.annotations.items():
            yield self._tagged("annotations", key, value)
        if wanted.selector is not None:
            yield self._labelled(wanted.selector)
        if wanted.namespace_selector is not None and not forgiving:
            raise CompileError("a namespaceSelector in exclude")

    def _kind(self, wanted: ResourceDescription) -> Test:
        if not wanted.kinds:
            return TRUE
        named = [parse_kind_selector(kind).kind for kind in wanted.kinds]
        if "*" in named or self.kinds <= set(named):
            return TRUE
        if len(named) == 1:
            return compare("request.kind.kind", "==", literal(named[0]))
        return Atom(f"request.kind.kind in {literal(named)}")

    # --- the resource

    def _named(self, names: Iterable[str]) -> Test:
        metadata = self.subject.navigate(("metadata",))
        given = metadata.step("generateName").or_value('""')
        return _match_any(names, metadata.step("name").or_value(given))

    def _in_namespaces(self, names: Iterable[str]) -> Test:
        own = _match_any(names, self.subject.navigate(("metadata", "name")).or_value('""'))
        others = _match_any(names, "request.namespace")
        if "Namespace" not in self.kinds and "*" not in self.kinds:
            return others
        if self.kinds == {"Namespace"}:
            return own
        return choose(compare("request.kind.kind", "==", '"Namespace"'), own, others)

    def _tags(self, field: str) -> CelValue:
        return self.subject.navigate(("metadata", field))

    def _tagged(self, field: str, key: str, value: str) -> Test:
        tags = self._tags(field)
        if has_wildcard(key):
            found = all_of((match_text(key, "key"), match_text(value, f"{tags.text}[key]")))
            return all_of((tags.present, for_some(tags.text, "key", found)))
        tag = tags.step(key)
        if not has_wildcard(value) and value:
            return compare(tag.or_value('""'), "==", literal(value))
        return all_of((tag.present, match_text(value, tag.text)))

    def _labelled(self, selector: LabelSelector) -> Test:
        labels = [self._tagged("labels", *entry) for entry in selector.match_labels.items()]
        required = [self._required(each) for each in selector.match_expressions]
        return all_of((*labels, *required))

    def _required(self, wanted: LabelRequirement) -> Test:
        label = self._tags("labels").step(wanted.key)
        within = all_of((label.present, Atom(f"{label.text} in {literal(list(wanted.values))}")))
        match wanted.operator:
            case "In":
                return within
            case "NotIn":
                return negate(within)
            case "Exists":
                return label.present
            case "DoesNotExist":
                return negate(label.present)
        raise CompileError(f"the operator {wanted.operator} of a label selector")

    # --- the caller

    def _callers(self, callers: tuple[Caller, ...], *, forgiving: bool) -> Test:
        if not callers:
            return TRUE
        known = Atom(f"has({_USER})")
        users = [_user_name(caller) for caller in callers if caller.kind != "Group"]
        groups = [caller.name for caller in callers if caller.kind == "Group"]
        tests = [_match_any(users, _USER)] if users else []
        if groups:
            listed = "request.userInfo.?groups.orValue([])"
            tests.append(for_some(listed, "group", _match_any(groups, "group")))
        tested = all_of((known, any_of(tests)))
        # The caller is unknown when resources are scanned; such rules then match everything.
        return any_of((negate(known), tested)) if forgiving else tested


def _user_name(caller: Caller) -> str:
    if caller.kind == "ServiceAccount":
        return f"system:serviceaccount:{caller.namespace}:{caller.name}"
    return caller.name


def _match_any(patterns: Iterable[str], text: str) -> Test:
    given = list(dict.fromkeys(patterns))
    exact = [pattern for pattern in given if not has_wildcard(pattern)]
    tests = [match_text(pattern, text) for pattern in given if has_wildcard(pattern)]
    if len(exact) == 1:
        tests.insert(0, compare(text, "==", literal(exact[0])))
    elif exact:
        tests.insert(0, Atom(f"{text} in {literal(exact)}"))
    return any_of(tests)
