"""May this policy, or what belongs to policies, be stored, or changed?"""

from collections.abc import Iterable, Iterator

from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.family import PolicyKind
from lictor.core.families.registry import registry
from lictor.core.load.fields import check_fields
from lictor.core.model.finding import Finding, write_path
from lictor.core.raw import Json, JsonObject
from lictor.lint.catalog import as_lint_finding, flag
from lictor.lint.context import lint_global_context
from lictor.lint.documents_by_kind import LintContext, lint_document
from lictor.lint.field import Field
from lictor.webhook.kind_admission import review_kinds, review_targets
from lictor.webhook.review_result import ACCEPTED, ReviewResult, build_review_result

# What may change without leaving made objects behind; all else selects these objects.
_MUTABLE = frozenset(
    ["synchronize", "data", "foreach", "orphanDownstreamOnPolicyDelete", "generateExisting"]
)
_STALE = (
    "no synchronization will be performed to the old target resource upon policy updates: "
    "changes in the generate rule pattern could result in stale targets"
)
_LOWER_CASE = "Validation failure actions enforce/audit are deprecated, use Enforce/Audit instead."
_IMMUTABLE = (
    "spec.rules: changes of immutable fields of a rule spec in a generate rule is disallowed: "
    'rule "{}" must stay as it is but for generate'
)


def review_change(document: JsonObject, old: JsonObject) -> ReviewResult:
    """What is wrong with changing the policy `old` into this one."""
    before, after = list(_list_generating(old)), list(_list_generating(document))
    targets = [_read_target(rule) for rule in after]
    if any(_read_target(rule) not in targets for rule in before):
        return ReviewResult(warnings=(_STALE,))
    is_kept = any(rule["generate"].get("synchronize") is True for rule in before)
    kept = [_read_identity(rule, with_match=is_kept) for rule in after]
    lost = [rule for rule in before if _read_identity(rule, with_match=is_kept) not in kept]
    if not lost:
        return ACCEPTED
    return ReviewResult(tuple(_IMMUTABLE.format(rule.get("name")) for rule in lost))


def is_untouched(document: JsonObject, old: JsonObject) -> bool:
    """Is the content of the policy unchanged, or the policy being deleted?"""
    metadata, before = document.get("metadata"), old.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(before, dict):
        return False
    if metadata.get("deletionTimestamp"):
        return True
    same_notes = metadata.get("annotations") == before.get("annotations")
    return same_notes and document.get("spec") == old.get("spec")


def _list_generating(document: JsonObject) -> Iterator[JsonObject]:
    spec = document.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, dict) and isinstance(rule.get("generate"), dict) and rule["generate"]:
            yield rule


def _read_target(rule: JsonObject) -> JsonObject:
    return _without(rule["generate"], _MUTABLE)


def _read_identity(rule: JsonObject, *, with_match: bool) -> JsonObject:
    return _without(rule, frozenset(["generate"] if with_match else ["generate", "match"]))


def _without(fields: JsonObject, names: frozenset[str]) -> JsonObject:
    """The other fields; an empty one is as good as none."""
    return {name: value for name, value in fields.items() if name not in names and _says(value)}


def _says(value: Json) -> bool:
    return value is not None and value not in ("", [], {})


def review_policy(
    document: JsonObject,
    old: JsonObject | None = None,
    names: ResourceNames | None = None,
    *,
    allow_http: bool = False,
) -> ReviewResult:
    """A policy, cleanup policy, exception or global context entry, from its text alone.

    `old` is what it replaces. `names` are the resources of the cluster; without them, kinds that
    are not Kubernetes' own are not checked. `allow_http`: may policies of one namespace call
    services?
    """
    faults = (*_check_form(document), *_lint(document, names or builtin_names()))
    result = build_review_result(fault for fault in faults if not _is_filled_in(fault, document))
    result += _review_reach(document, allow_http=allow_http)
    if names is not None:
        result += review_kinds(document, names)
        result += review_targets(document, names)
    if old is None:
        return result
    if is_untouched(document, old):
        # What is stored may always be labelled and deleted.
        return result.soften()
    return result + review_change(document, old) + _review_own_change(document, old)


def _review_own_change(document: JsonObject, old: JsonObject) -> ReviewResult:
    kind = _find_kind(document)
    if kind is None:
        return ACCEPTED
    return build_review_result(kind.family.review_change(document, old))


def _is_filled_in(fault: Finding, document: JsonObject) -> bool:
    """Is it about a field that the API server fills in, not the author?"""
    if fault.check != "deprecated" or tuple(fault.path) != ("spec", "validationFailureAction"):
        return False
    return bool(document["spec"]["validationFailureAction"] == "Audit")


def warn_deprecation(document: JsonObject) -> ReviewResult:
    """Kyverno's warnings about a kind, and about actions in lower case."""
    found = tuple(list_deprecations(document))
    return ReviewResult(warnings=tuple(text for _, text in found)) if found else ACCEPTED


def list_deprecations(document: JsonObject) -> Iterator[tuple[str, str]]:
    """The path of each deprecated value, empty for the kind itself, and Kyverno's warning."""
    kind = _find_kind(document)
    text = kind.describe_deprecation(_read_version(document)) if kind is not None else ""
    if text:
        yield "", text
        for field in _list_actions(Field(document)["spec"]):
            path = write_path(field.path)
            yield path, f"{path}: {_LOWER_CASE}"


def _list_actions(spec: Field) -> Iterator[Field]:
    """The failure actions in lower case."""
    named = [spec["validationFailureAction"]]
    named += [each["action"] for each in spec["validationFailureActionOverrides"].each()]
    for rule in spec["rules"].each():
        validate = rule["validate"]
        named.append(validate["failureAction"])
        named += [each["action"] for each in validate["failureActionOverrides"].each()]
    return (field for field in named if field.text in ("enforce", "audit"))


def _read_version(document: JsonObject) -> str:
    return str(document.get("apiVersion")).rpartition("/")[2]


def _find_kind(document: JsonObject) -> PolicyKind | None:
    group, _, _ = str(document.get("apiVersion") or "").rpartition("/")
    return registry().find(group, str(document.get("kind") or ""))


def _is_global_context(document: JsonObject) -> bool:
    return document.get("kind") == "GlobalContextEntry"


def _check_form(document: JsonObject) -> Iterator[Finding]:
    """Fields that are missing, unknown or of the wrong type."""
    kind = _find_kind(document)
    if kind is None:
        if not _is_global_context(document):
            message = f'no policy has the kind "{document.get("kind")}"'
            yield flag("unknown-kind", ("kind",), message)
        return
    absent = kind.family.find_absent_fields(kind, _read_version(document))
    for fault in check_fields(document, kind.family.get_record(kind), absent=absent):
        yield as_lint_finding(fault)


def _lint(document: JsonObject, names: ResourceNames) -> Iterable[Finding]:
    if _is_global_context(document):
        return lint_global_context(document)
    kind = _find_kind(document)
    if kind is None:
        return ()
    return lint_document(kind, document, LintContext(lambda: names))


def _review_reach(document: JsonObject, *, allow_http: bool) -> ReviewResult:
    """A policy of one namespace must not reach data and services that its author cannot reach."""
    kind = _find_kind(document)
    if kind is None or not (kind.is_listed and kind.namespaced):
        return ACCEPTED
    if kind.has_named_rules:
        if not _holds_field(document.get("spec"), "globalReference"):
            return ACCEPTED
        return ReviewResult(("globalReference is not allowed in namespaced policies",))
    faults = []
    if not allow_http and _uses_library(document, "http"):
        faults.append(
            "spec: http.* is not allowed in namespaced policies; set "
            "--allowHTTPInNamespacedPolicies to enable"
        )
    if _uses_library(document, "globalContext"):
        faults.append("spec: globalContext.* is not allowed in namespaced policies")
    return ReviewResult(tuple(faults))


def _holds_field(part: Json, name: str) -> bool:
    if isinstance(part, dict):
        return name in part or any(_holds_field(value, name) for value in part.values())
    return isinstance(part, list) and any(_holds_field(item, name) for item in part)


def _uses_library(document: JsonObject, name: str) -> bool:
    """Whether an expression of the policy calls a library by its name."""
    from lictor.core.lang.cel.lexer import read_tokens
    from lictor.lint.cel_policies import list_cel_texts

    for text in list_cel_texts(Field(document)["spec"]):
        tokens = read_tokens(text) if name in text else []
        for before, token in zip((None, *tokens), tokens, strict=False):
            is_field = before is not None and before.text == "."
            if token.kind == "name" and token.text == name and not is_field:
                return True
    return False
