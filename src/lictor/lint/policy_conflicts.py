"""Checks for rules with contradicting or redundant requirements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.families.family import PolicyKind
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.anchor import Modifier, parse_anchor
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.model.finding import FieldPath, Finding
from lictor.core.model.program import Phase
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.cluster_mutations import KeyPath
from lictor.lint.cluster_requests import enforces
from lictor.lint.contradictions import contradict, covers_filter
from lictor.lint.documents import LintObject
from lictor.lint.field import Field
from lictor.lint.match import CALLERS, list_filters
from lictor.lint.value_sets import ValueSet, are_disjoint, read_scalar

# Of the rules with equal requirements, this many are compared with others.
_MOST_ALIKE = 8
# The limit of different requirements for a field of a kind.
_MOST_DIFFERENT = 64
# Conflicts that are reported for one rule.
_MOST_REPORTED = 3
# A folder of policies, resources and values for tests only.
_TESTS = ".kyverno-test/"
# What a classic rule may check; equal texts check the same.
_CHECKS = ("pattern", "anyPattern", "deny", "cel")
_NARROWING = ("name", "selector", "namespaceSelector", "annotations")
_WRITING = frozenset(("CREATE", "UPDATE"))
# Anchors that the rest of a pattern depends on.
_ASKING = (Modifier.CONDITION, Modifier.GLOBAL)
_AUTOGEN = "pod-policies.kyverno.io/autogen-controllers"


class _Requirement(msgspec.Struct, frozen=True):
    """The values that a pattern allows at a field."""

    path: KeyPath
    # Its path, and its text.
    at: Field
    # None if it is not understood.
    allowed: ValueSet | None = None

    @property
    def literal(self) -> bytes:
        """Equal for patterns with the same requirement and the same text."""
        keys = ["*" if isinstance(key, int) else key for key in self.at.path]
        # After spec, rules, the number of the rule, validate and pattern.
        return msgspec.json.encode((keys[5:], self.at.value), order="deterministic")


class _ComparedRule(msgspec.Struct, frozen=True):
    """A single validate rule or validation."""

    item: LintObject
    # Its path in the document, and its name in messages.
    at: FieldPath
    title: str
    # What it checks, as text.
    text: bytes
    enforces: bool
    # It denies less than its text: exceptions, overrides, bindings.
    is_weakened: bool
    # What a classic rule matches; nothing for a policy in CEL.
    filters: tuple[Field, ...]
    # What excludes some of that, as text: empty if nothing does.
    limits: tuple[bytes, ...]
    # The autogen settings, as text.
    autogen: bytes
    requirements: tuple[_Requirement, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """A cluster has only the later of two with the same identity."""
        return (self.item.group, self.item.kind, self.item.namespace, self.item.name)

    @property
    def kinds(self) -> set[str]:
        texts = (text for each in self.filters for text in each["resources"]["kinds"].texts)
        return {parse_kind_selector(text).kind for text in texts}


def find_conflicts(items: Sequence[LintObject]) -> dict[str, list[Finding]]:
    """By file, rules that exclude each other, and redundant rules."""
    # Policies of tests are never in a cluster together with the others.
    used = [item for item in items if _TESTS not in item.file.source.replace("\\", "/")]
    rules = list(_list_rules(used))
    found: dict[str, list[Finding]] = {}
    for rule, finding in (*_list_conflicts(rules), *_list_repetitions(rules)):
        found.setdefault(rule.item.file.source, []).append(rule.item.locate(finding))
    return found


def _are_together(one: _ComparedRule, other: _ComparedRule) -> bool:
    """Whether a cluster can have both: of two policies with the same name, only one."""
    return one.item is other.item or one.identity != other.identity


def _name(rule: _ComparedRule, asking: _ComparedRule) -> str:
    """Another rule, with its file and line."""
    line, _ = rule.item.document.position(rule.item.prefix + rule.at)
    is_here = rule.item.file is asking.item.file
    return f"{rule.title} ({f'line {line}' if is_here else f'{rule.item.file.source}:{line}'})"


# --- rules


def _list_rules(items: Sequence[LintObject]) -> Iterator[_ComparedRule]:
    excepted, bound = _find_surroundings(items)
    for item in items:
        kind = item.policy_kind
        if kind is None or (kind.phases and Phase.VALIDATE not in kind.phases):
            continue
        if kind.has_named_rules:
            yield from _list_classic(item, is_excepted=item.name in excepted)
        elif kind.phases == (Phase.VALIDATE,):
            is_weak = item.name not in bound if kind.is_native else item.name in excepted
            yield from _list_validations(item, kind, is_weak=is_weak)


def _find_surroundings(items: Iterable[LintObject]) -> tuple[set[str], set[str]]:
    """Policies with exceptions, and those that a binding enforces everywhere."""
    excepted: set[str] = set()
    bound: set[str] = set()
    for item in items:
        spec = Field(item.body)["spec"]
        if item.kind.endswith("PolicyException"):
            excepted.update(each["policyName"].text for each in spec["exceptions"].each())
            excepted.update(each["name"].text for each in spec["policyRefs"].each())
        elif item.kind == "ValidatingAdmissionPolicyBinding":
            refuses = "Deny" in spec["validationActions"].texts
            if refuses and spec["matchResources"].is_empty:
                bound.add(spec["policyName"].text)
    return excepted, bound


def _write(*parts: Field) -> bytes:
    """Its text, for comparison; empty if there is none."""
    if all(part.is_empty for part in parts):
        return b""
    return msgspec.json.encode([part.value for part in parts], order="deterministic")


def _list_classic(item: LintObject, *, is_excepted: bool) -> Iterator[_ComparedRule]:
    policy = Field(item.body)
    spec = policy["spec"]
    is_limited = any(spec[name].value is False for name in ("background", "admission"))
    is_weak = is_excepted or is_limited or spec["applyRules"].text == "One"
    for rule in spec["rules"].each():
        validate = rule["validate"]
        checks = [validate[name] for name in _CHECKS]
        is_one = sum(map(bool, checks)) == 1 and not validate["foreach"]
        if not is_one or len(list(rule["match"]["all"].each())) > 1:
            continue
        overrides = (spec["validationFailureActionOverrides"], validate["failureActionOverrides"])
        conditions = (rule["preconditions"], rule["celPreconditions"])
        yield _ComparedRule(
            item,
            rule.path,
            f"rule {rule['name'].text!r} of {item.kind} {item.name}",
            _write(*checks, rule["context"]),
            enforces(policy, rule),
            is_weak or spec["failurePolicy"].text == "Ignore" or bool(_write(*overrides)),
            tuple(_place(each, item) for each in list_filters(rule["match"])),
            (
                _write(rule["exclude"]),
                _write(*conditions, spec["webhookConfiguration"]["matchConditions"]),
            ),
            _write(policy["metadata"]["annotations"][_AUTOGEN]),
            tuple(_read_pattern(validate["pattern"])),
        )


def _place(each: Field, item: LintObject) -> Field:
    """A filter of a match, with the policy's namespace."""
    resources = each["resources"].value
    if not item.namespace or not isinstance(resources, dict):
        return each
    inside = {**resources, "namespaces": [item.namespace]}
    return Field({**each.value, "resources": inside}, each.path)


def _list_validations(
    item: LintObject, kind: PolicyKind, *, is_weak: bool
) -> Iterator[_ComparedRule]:
    spec = Field(item.body)["spec"]
    evaluation = spec["evaluation"]
    phases = (evaluation[name]["enabled"].value for name in ("admission", "background"))
    is_weak = is_weak or spec["failurePolicy"].text == "Ignore" or False in phases
    if spec["paramKind"] or evaluation["mode"].text not in ("", "Kubernetes"):
        return
    listed = list(spec["validations"].each())
    for number, each in enumerate(listed, 1):
        place = "" if len(listed) == 1 else f"validation {number} of "
        yield _ComparedRule(
            item,
            each.path,
            f"{place}{item.kind} {item.name}",
            _write(each["expression"], spec["variables"]),
            kind.is_native or "Deny" in (spec["validationActions"].texts or ("Deny",)),
            is_weak,
            (),
            (
                item.kind.encode(),
                item.namespace.encode(),
                _write(spec["matchConstraints"], spec["matchConditions"]),
            ),
            _write(spec["autogen"]),
        )


# --- patterns


def _read_pattern(pattern: Field) -> Iterator[_Requirement]:
    """The requirements of a pattern; none if it has conditions."""
    anchors = (parse_anchor(each.text) for each in pattern.leaves())
    if pattern.is_object and not any(each and each.modifier in _ASKING for each in anchors):
        yield from _walk(pattern, (), frozenset())


def _walk(at: Field, path: KeyPath, absent: frozenset[int]) -> Iterator[_Requirement]:
    # Null is a pattern, too.
    for key in at.value:
        item = at[key]
        anchor = parse_anchor(key)
        name = key if anchor is None else anchor.key
        inner = (*path, name)
        may_lack = absent if anchor is None else absent | {len(inner)}
        if "{{" in name or has_wildcard(name):
            yield _Requirement(inner, item)
        elif anchor is None or anchor.modifier is Modifier.EQUALITY:
            yield from _ask(item, inner, may_lack)
        elif anchor.modifier is Modifier.NEGATION:
            yield _Requirement(inner, item, ValueSet((), may_lack))
        else:
            yield _Requirement(inner, item)


def _ask(item: Field, path: KeyPath, absent: frozenset[int]) -> Iterator[_Requirement]:
    elements = list(item.each())
    if item.is_object and item.value:
        yield from _walk(item, path, absent)
    elif len(elements) == 1 and elements[0].is_object and elements[0].value:
        inner = (*path, "*")
        # An empty list has no violations; of containers, there is always one.
        is_filled = path[-2:] == ("spec", "containers")
        yield from _walk(elements[0], inner, absent if is_filled else absent | {len(inner)})
    elif item.is_object or item.is_list:
        yield _Requirement(path, item)
    else:
        parts = read_scalar(item.value)
        missing = absent | {len(path)} if _allows_absence(item.value) else absent
        yield _Requirement(path, item, None if parts is None else ValueSet(parts, missing))


def _allows_absence(pattern: Json) -> bool:
    try:
        return compile_pattern({"key": pattern})({}) is None
    except CompileError:
        return True


# --- two that cannot both be kept

_Asking: TypeAlias = tuple[int, _Requirement]
# By kind and path: the allowed values, and their rules.
_Index: TypeAlias = Mapping[tuple[str, KeyPath], Mapping[ValueSet, Sequence[_Asking]]]


def _make_index(rules: Iterable[_ComparedRule]) -> _Index:
    index: dict[tuple[str, KeyPath], dict[ValueSet, list[_Asking]]] = {}
    for number, rule in enumerate(rules):
        for each in rule.requirements:
            if each.allowed is not None:
                for kind in rule.kinds:
                    sets = index.setdefault((kind, each.path), {})
                    sets.setdefault(each.allowed, []).append((number, each))
    return index


def _list_conflicts(rules: Sequence[_ComparedRule]) -> Iterator[tuple[_ComparedRule, Finding]]:
    tried: set[tuple[int, int]] = set()
    reported: dict[int, int] = {}
    for sets in _make_index(rules).values():
        for first, second in combinations(islice(sets, _MOST_DIFFERENT), 2):
            if not are_disjoint(first, second):
                continue
            for pair in product(sets[first][:_MOST_ALIKE], sets[second][:_MOST_ALIKE]):
                (one, theirs), (other, ours) = sorted(pair, key=lambda asking: asking[0])
                if (one, other) in tried or reported.get(other, 0) >= _MOST_REPORTED:
                    continue
                tried.add((one, other))
                if _can_meet(rules[one], rules[other], ours.path):
                    reported[other] = reported.get(other, 0) + 1
                    yield rules[other], _report_conflict(rules[one], theirs, rules[other], ours)


def _can_meet(one: _ComparedRule, other: _ComparedRule, path: KeyPath) -> bool:
    """Whether resources exist that both match; False in doubt."""
    return (
        one is not other
        and _are_together(one, other)
        and one.limits == other.limits
        and not one.limits[-1]
        and any(_overlap(*pair, path) for pair in product(one.filters, other.filters))
    )


def _overlap(one: Field, other: Field, path: KeyPath) -> bool:
    first, second = one["resources"], other["resources"]
    written = [set(each["operations"].texts) or _WRITING for each in (first, second)]
    if not written[0] & written[1] & _WRITING or contradict(first, second):
        return False
    fields = [
        [*(each["resources"][key] for key in _NARROWING), *(each[key] for key in CALLERS)]
        for each in (one, other)
    ]
    narrow = {_write(*each) for each in fields} - {b""}
    # With label selectors, a resource with other labels is not matched.
    return not narrow or (len(narrow) == 1 and path[0] != "metadata")


def _report_conflict(
    one: _ComparedRule, theirs: _Requirement, other: _ComparedRule, ours: _Requirement
) -> Finding:
    field = ".".join(ours.path).replace(".*", "[]")
    message = (
        f"no resource passes both this and {_name(one, other)}: "
        f"{field} must be {_describe(ours)} here, and {_describe(theirs)} there"
    )
    return flag("policy-conflict", ours.at.path, message)


def _describe(requirement: _Requirement) -> str:
    allowed = requirement.allowed or ValueSet()
    written = msgspec.json.encode(requirement.at.value).decode()
    words = [written] if allowed.parts else []
    return " or ".join([*words, *(["absent"] if allowed.absent else [])])


# --- redundant rules


def _list_repetitions(rules: Sequence[_ComparedRule]) -> Iterator[tuple[_ComparedRule, Finding]]:
    same: dict[bytes, list[int]] = {}
    for number, rule in enumerate(rules):
        for key in {rule.text, *(each.literal for each in rule.requirements)}:
            same.setdefault(key, []).append(number)
    for number, rule in enumerate(rules):
        first = [each.literal for each in rule.requirements[:1]]
        numbers = [at for key in (rule.text, *first) for at in same[key][:_MOST_ALIKE]]
        for at in dict.fromkeys(numbers):
            # Of two equal ones, the second one is reported.
            if _repeats(rules[at], rule) and (at < number or not _repeats(rule, rules[at])):
                yield rule, _report_repetition(rules[at], rule)
                break


def _repeats(strong: _ComparedRule, weak: _ComparedRule) -> bool:
    """Whether one requires all that the other requires, of the same resources; False in doubt."""
    if strong is weak or strong.is_weakened or (weak.enforces and not strong.enforces):
        return False
    if not _are_together(strong, weak) or not _covers(strong, weak):
        return False
    if strong.text == weak.text:
        return bool(weak.text)
    asked = {each.literal for each in weak.requirements}
    is_known = all(each.allowed is not None for each in weak.requirements)
    return bool(asked) and is_known and asked <= {each.literal for each in strong.requirements}


def _covers(strong: _ComparedRule, weak: _ComparedRule) -> bool:
    if not weak.filters or not strong.filters:
        is_alike = strong.filters == weak.filters and strong.limits == weak.limits
        return is_alike and strong.autogen == weak.autogen
    # Autogen creates rules for controllers from rules about Pods only.
    if weak.kinds == {"Pod"} and (strong.kinds, strong.autogen) != (weak.kinds, weak.autogen):
        return False
    return all(
        mine in (b"", theirs) for mine, theirs in zip(strong.limits, weak.limits, strict=True)
    ) and all(any(covers_filter(one, each) for one in strong.filters) for each in weak.filters)


def _report_repetition(strong: _ComparedRule, weak: _ComparedRule) -> Finding:
    message = f"this requires nothing beyond {_name(strong, weak)}: one of them is enough"
    return flag("policy-subsumed", weak.at, message)
