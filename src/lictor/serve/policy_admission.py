"""May this policy, or what belongs to policies, be stored? What its author is told."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from lictor.lang.resource_names import ResourceNames, builtin_names
from lictor.lint.catalog import as_lint_finding, flag
from lictor.lint.context import lint_global_context
from lictor.lint.exceptions import lint_cleanup, lint_exception
from lictor.lint.images import find_unsupported
from lictor.lint.policy import lint_policy
from lictor.load.fields import check_fields
from lictor.load.kinds import absent_fields, find_kind
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.finding import Finding, write_path
from lictor.model.policy import Policy
from lictor.raw import JsonObject
from lictor.serve.change_admission import is_untouched, review_change
from lictor.serve.kind_admission import review_kinds
from lictor.serve.opinion import Opinion, build_opinion
from lictor.serve.target_admission import review_targets

_Lint: TypeAlias = Callable[[JsonObject], Iterable[Finding]]


def review_policy(
    document: JsonObject,
    old: JsonObject | None = None,
    names: ResourceNames | None = None,
    *,
    allow_http: bool = False,
) -> Opinion:
    """A policy, cleanup policy, exception or global context entry, from its text alone.

    `old` is what it replaces. `names` are the resources of the cluster; without them, kinds that
    are not Kubernetes' own are not asked about. `allow_http`: may policies of one namespace call
    services?
    """
    faults = (*_check_form(document), *_lint(document, names or builtin_names()))
    opinion = build_opinion(fault for fault in faults if not _is_filled_in(fault, document))
    opinion += _review_unsupported(document)
    if not allow_http:
        opinion += _review_http(document)
    if names is not None:
        opinion += review_kinds(document, names)
        opinion += review_targets(document, names)
    if old is None:
        return opinion
    if is_untouched(document, old):
        # What is stored may always be labelled and deleted.
        return opinion.soften()
    return opinion + review_change(document, old)


def _is_filled_in(fault: Finding, document: JsonObject) -> bool:
    """Is it about a field that nobody wrote? The API server fills in this one."""
    if fault.check != "deprecated" or tuple(fault.path) != ("spec", "validationFailureAction"):
        return False
    return bool(document["spec"]["validationFailureAction"] == "Audit")


def _review_unsupported(document: JsonObject) -> Opinion:
    found = find_unsupported(document)
    return Opinion(warnings=tuple(f"{write_path(path)}: {message}" for path, message in found))


def _find_record(document: JsonObject) -> type | None:
    group, _, _ = str(document.get("apiVersion") or "").rpartition("/")
    known = find_kind(group, str(document.get("kind") or ""))
    return None if known is None else known[0]


def _is_global_context(document: JsonObject) -> bool:
    return document.get("kind") == "GlobalContextEntry"


def _check_form(document: JsonObject) -> Iterator[Finding]:
    """Fields that are missing, unknown or of the wrong type."""
    record = _find_record(document)
    if record is None:
        if not _is_global_context(document):
            message = f'no policy has the kind "{document.get("kind")}"'
            yield flag("unknown-kind", ("kind",), message)
        return
    version = str(document.get("apiVersion")).rpartition("/")[2]
    for fault in check_fields(document, record, absent=absent_fields(record, version)):
        yield as_lint_finding(fault)


def _lint(document: JsonObject, names: ResourceNames) -> Iterable[Finding]:
    if _is_global_context(document):
        return lint_global_context(document)
    record = _find_record(document)
    if record is None:
        return ()
    checks: Mapping[type, _Lint] = {
        Policy: lint_policy,
        CleanupPolicy: lint_cleanup,
        PolicyException: lambda body: lint_exception(body, {}),
    }
    check = checks.get(record)
    return _lint_cel(document, names) if check is None else check(document)


def _lint_cel(document: JsonObject, names: ResourceNames) -> Iterable[Finding]:
    from lictor.lint.cel_policies import lint_cel_policy
    from lictor.lint.exceptions import lint_cel_exception

    if document.get("kind") == "PolicyException":
        return lint_cel_exception(document, ())
    return lint_cel_policy(document, names)


def _review_http(document: JsonObject) -> Opinion:
    """A policy of one namespace must not reach services that its author cannot reach."""
    from lictor.lang.cel.tokens import read_tokens
    from lictor.lint.cel_policies import list_cel_texts
    from lictor.lint.field import Field

    if not str(document.get("kind")).startswith("Namespaced"):
        return Opinion()
    for text in list_cel_texts(Field(document)["spec"]):
        tokens = read_tokens(text) if "http" in text else []
        for before, token in zip((None, *tokens), tokens, strict=False):
            is_field = before is not None and before.text == "."
            if token.kind == "name" and token.text == "http" and not is_field:
                told = (
                    "spec: http.* is not allowed in namespaced policies; set "
                    "--allowHTTPInNamespacedPolicies to enable"
                )
                return Opinion((told,))
    return Opinion()
