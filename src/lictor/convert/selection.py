"""`match` and `exclude` of a rule as constraints and conditions in CEL."""

from collections.abc import Iterable

import msgspec

from lictor.convert.kinds import Meant, find_kinds
from lictor.convert.place import Place
from lictor.convert.scalar import match_text
from lictor.convert.subject import Subject
from lictor.convert.truth import (
    FALSE,
    TRUE,
    Atom,
    Test,
    all_of,
    any_of,
    choose,
    compare,
    for_some,
    negate,
)
from lictor.convert.writing import literal
from lictor.errors import CompileError
from lictor.lang.resource_names import ResourceNames
from lictor.lang.wildcard import has_wildcard
from lictor.model.policy import (
    LabelRequirement,
    LabelSelector,
    Match,
    ResourceDescription,
    ResourceFilter,
    Rule,
)
from lictor.model.policy import (
    Subject as Caller,
)
from lictor.raw import JsonObject

_USER = "request.userInfo.username"


class Selection(msgspec.Struct, frozen=True):
    """Which requests a rule concerns, as far as that can be said without conditions."""

    kinds: tuple[Meant, ...]
    operations: tuple[str, ...]
    namespace_selector: JsonObject | None = None


def select(rule: Rule, names: ResourceNames, groups: Iterable[str]) -> Selection:
    """The kinds and operations of a rule; CompileError where they have no equivalent."""
    filters = _filters(rule.match)
    kinds = [kind for each in filters for kind in find_kinds(each.resources.kinds, names, groups)]
    if not kinds:
        raise CompileError("a rule that names no kinds")
    return Selection(
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
    filters: tuple[ResourceFilter, ...], kinds: list[Meant]
) -> JsonObject | None:
    selectors = [each.resources.namespace_selector for each in filters]
    first = selectors[0]
    if all(selector is None for selector in selectors):
        return None
    if any(selector != first for selector in selectors) or first is None:
        raise CompileError("filters with different namespaceSelectors")
    if any(kind.kind in ("Namespace", "*") or kind.namespaced is False for kind in kinds):
        raise CompileError("a namespaceSelector for kinds that lie in no namespace")
    texts = (*first.match_labels, *first.match_labels.values())
    if any(has_wildcard(text) for text in texts):
        raise CompileError("wildcards in a namespaceSelector have no equivalent")
    selected: JsonObject = msgspec.to_builtins(first)
    return selected


def translate_match(rule: Rule, kinds: Iterable[Meant], subject: Subject) -> Test:
    """What is left to be asked of a request of the right kind."""
    wanted = _Filters(subject, frozenset(kind.kind for kind in kinds))
    unwanted = FALSE if rule.exclude is None else wanted.excluded(rule.exclude)
    return all_of((wanted.matched(rule.match), negate(unwanted)))


class _Filters(msgspec.Struct, frozen=True):
    subject: Subject
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
        if wanted.operations:
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
        from lictor.lang.kind_selector import parse_kind_selector

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

    def _tags(self, field: str) -> Place:
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
        asked = all_of((known, any_of(tests)))
        # Who asks is not known when resources are scanned; such rules then concern everyone.
        return any_of((negate(known), asked)) if forgiving else asked


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
