"""A verdict into the answer that an API server waits for, in the words that Kyverno uses."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cmp_to_key
from typing import TypeAlias

import msgspec
import orjson
import yaml

from lictor.core.errors import TooLargeError
from lictor.core.lang.patch.pointer import diff
from lictor.core.lang.written_size import ensure_room
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Action, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject

# Text that a YAML reader would take for something else than text.
_OTHER = re.compile(
    r"""
    [yYnN] | yes|Yes|YES | no|No|NO | true|True|TRUE | false|False|FALSE | on|On|ON | off|Off|OFF
    | ~ | null|Null|NULL | [-+]?\.(inf|Inf|INF) | \.(nan|NaN|NAN)
    | [-+]?[0-9][0-9_]* | [-+]?0x[0-9a-fA-F_]+ | [-+]?0o?[0-7_]+ | [-+]?0b[01_]+
    | [-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?
    | [-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?
    | \d{4}-\d{1,2}-\d{1,2}([Tt\s]+\d{1,2}:\d{2}:\d{2}(\.\d+)?(Z|[-+]\d{2}:\d{2})?)?
    """,
    re.VERBOSE,
)
_DIGITS = re.compile(r"\d*")


class _Dumper(yaml.CSafeDumper):
    """Breaks long lines as the tools of Kubernetes do."""


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif not text or _OTHER.fullmatch(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)
# Which text needs quotes is decided above: the dumper's own rules quote less.
_Dumper.yaml_implicit_resolvers = {}


def render_refusal(failures: Mapping[str, Mapping[str, str]]) -> str:
    """Policy -> rule -> message, in the order of their names."""
    order = cmp_to_key(_compare)
    ordered = {
        policy: {rule: failures[policy][rule] for rule in sorted(failures[policy], key=order)}
        for policy in sorted(failures, key=order)
    }
    text: str = yaml.dump(
        ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text


def _compare(left: str, right: str) -> int:
    """Names as Go's YAML orders them: numbers count as numbers, letters come after all else."""
    pairs = enumerate(zip(left, right, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))
    if at == min(len(left), len(right)):
        return len(left) - len(right)
    one, other = left[at], right[at]
    if one.isalpha() or other.isalpha():
        if one.isalpha() and other.isalpha():
            return ord(one) - ord(other)
        return 1 if one.isalpha() else -1
    # A zero inside a number is a digit like others; a leading zero has no meaning.
    before = re.search(r"(?<!\d)\d*$", left[:at])
    lead = "1" if "0" in (one, other) and before and before[0].strip("0") else ""
    numbers = [_read_digits(name, at) for name in (left, right)]
    values = [int(lead + digits or "0") for digits in numbers]
    if values[0] != values[1]:
        return -1 if values[0] < values[1] else 1
    return len(numbers[0]) - len(numbers[1]) or ord(one) - ord(other)


def _read_digits(name: str, at: int) -> str:
    found = _DIGITS.match(name, at)
    return found[0][:18] if found else ""


API_VERSION = "admission.k8s.io/v1"
# Longer messages are cut: a policy can make its message as large as memory allows.
_LONGEST = 64 * 1024
_MOST_WARNINGS = 100
# An API server takes no object that is larger: what such a patch makes could not be stored. To
# write and send it would keep other requests waiting.
_LARGEST_PATCH = 3 * 1024 * 1024
# Constants, because this runs for every result and enum lookups are slower.
_PASS, _SKIP = Status.PASS, Status.SKIP
_BROKEN = (Status.FAIL, Status.ERROR)
_TOLD = (Status.FAIL, Status.ERROR, Status.WARN)
_VERBS = {Status.FAIL: "failed", Status.ERROR: "error"}

# Does a policy want requests refused that it could not decide?
FailsClosed: TypeAlias = Callable[[PolicyRef], bool]


class AdmissionAnswer(msgspec.Struct, frozen=True):
    """The response to the API server: allowed or not, message, warnings, patch."""

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[JsonObject, ...] = ()
    # Code and details of a refusal.
    status: JsonObject = {}
    audit_annotations: Mapping[str, str] = {}


ALLOWED = AdmissionAnswer()


class AnswerStyle(Enum):
    """The message format: that of classic policies, or that of a CEL kind."""

    CLASSIC_VALIDATING = "classic rules that validate"
    CLASSIC_MUTATING = "classic rules that mutate, and those that verify images"
    CEL_VALIDATING = "policies in CEL that validate"
    CEL_MUTATING = "policies in CEL that mutate"
    OWN_PATH = "a policy that has a path for itself"
    OWN_AUDIT = "the same, evaluated whether or not it is in force"


class AnswerOptions(msgspec.Struct, frozen=True):
    """The settings of the policies that gave a verdict."""

    style: AnswerStyle
    fails_closed: FailsClosed
    # The keys of those that warn of what they find.
    warning: frozenset[str] = frozenset()
    # Policies, by key, and their rules that name no operations.
    any_operation: frozenset[tuple[str, str]] = frozenset()


def build_answer(verdict: Verdict, options: AnswerOptions) -> AdmissionAnswer:
    """All failures of all policies, or the changes and the warnings."""
    # Most requests need no message and return at once; policies that format their
    # answers themselves may have warnings.
    if options.style is not AnswerStyle.OWN_PATH and verdict.patched is verdict.request.object:
        for result in verdict.results:
            if result.status is not _PASS and result.status is not _SKIP:
                break
        else:
            return ALLOWED
    match options.style:
        case AnswerStyle.CLASSIC_VALIDATING:
            return _answer_classic(verdict, options)
        case AnswerStyle.CLASSIC_MUTATING:
            return _answer_mutating(verdict, options)
        case AnswerStyle.CEL_VALIDATING:
            return _answer_cel(verdict, options)
        case AnswerStyle.CEL_MUTATING:
            return _answer_cel_mutating(verdict)
        case AnswerStyle.OWN_PATH:
            return _answer_own(verdict, (Action.ENFORCE,))
        case AnswerStyle.OWN_AUDIT:
            return _answer_own(verdict, tuple(Action))


def render_review(uid: str, answer: AdmissionAnswer, api_version: str = API_VERSION) -> bytes:
    """The AdmissionReview that carries an answer; TooLargeError where that is too large."""
    response: JsonObject = {"uid": uid, "allowed": answer.allowed}
    if answer.patch and ensure_room(list(answer.patch)) > _LARGEST_PATCH:
        raise TooLargeError(f"the patch is larger than {_LARGEST_PATCH >> 20} MiB")
    if not answer.allowed:
        failure = {"status": "Failure", "message": _shorten(answer.message)}
        response["status"] = {**answer.status, **failure}
    if answer.warnings:
        response["warnings"] = [_shorten(text) for text in answer.warnings[:_MOST_WARNINGS]]
    if answer.audit_annotations:
        response["auditAnnotations"] = dict(answer.audit_annotations)
    if answer.patch and answer.allowed:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(orjson.dumps(answer.patch)).decode()
    review = {
        "apiVersion": api_version or API_VERSION,
        "kind": "AdmissionReview",
        "response": response,
    }
    return orjson.dumps(review)


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def read_resource_name(request: Request) -> tuple[str, str, str]:
    """Kind, namespace and name of the requested object."""
    metadata = request.resource.get("metadata")
    own = metadata if isinstance(metadata, dict) else {}
    kind = request.resource.get("kind")
    return (
        str(kind or request.kind.kind),
        str(own.get("namespace") or ""),
        str(own.get("name") or ""),
    )


def _answer_classic(verdict: Verdict, options: AnswerOptions) -> AdmissionAnswer:
    blocking = [result for result in verdict.results if _blocks(result, options)]
    if blocking:
        reason = _describe_refusal(verdict.request, blocking)
        return AdmissionAnswer(
            allowed=False,
            message=f"{reason}{_explain_deletion(verdict.request, blocking, options)}",
        )
    warnings = tuple(_warn_classic(verdict.results, options))
    return AdmissionAnswer(warnings=warnings) if warnings else ALLOWED


def _answer_mutating(verdict: Verdict, options: AnswerOptions) -> AdmissionAnswer:
    changes = [r for r in verdict.results if r.type is not RuleType.IMAGE_VERIFY]
    broken = next((r.policy for r in changes if _blocks_change(r, options)), None)
    if broken is not None:
        return AdmissionAnswer(allowed=False, message=_describe_failed_change(broken, changes))
    images = [r for r in verdict.results if r.type is RuleType.IMAGE_VERIFY]
    blocking = [result for result in images if _blocks(result, options)]
    if blocking:
        return AdmissionAnswer(allowed=False, message=_describe_refusal(verdict.request, blocking))
    return AdmissionAnswer(
        warnings=tuple(_warn_classic(verdict.results, options)), patch=_list_changes(verdict)
    )


def _answer_cel(verdict: Verdict, options: AnswerOptions) -> AdmissionAnswer:
    refusals = [
        _phrase(result)
        for result in verdict.results
        if result.action is Action.ENFORCE and result.status in _BROKEN
    ]
    warnings = tuple(
        _phrase(result)
        for result in verdict.results
        if result.status in _BROKEN and result.policy.key in options.warning
    )
    if refusals:
        return AdmissionAnswer(allowed=False, message="; ".join(refusals), warnings=warnings)
    patch = _list_changes(verdict) if verdict.patched is not verdict.request.object else ()
    return AdmissionAnswer(warnings=warnings, patch=patch) if warnings or patch else ALLOWED


def _answer_own(verdict: Verdict, actions: tuple[Action, ...]) -> AdmissionAnswer:
    """The policy's own message; a policy that cannot be evaluated denies."""
    answers = [result.caller_answer for result in verdict.results if result.caller_answer]
    warnings = tuple(text for answer in answers for text in answer.warnings)
    notes = {name: text for answer in answers for name, text in answer.audit_annotations.items()}
    for result in verdict.results:
        if result.action in actions and result.status in _BROKEN:
            status = result.caller_answer.status if result.caller_answer else {}
            return AdmissionAnswer(
                allowed=False,
                message=status.get("message", result.message),
                warnings=warnings,
                status=status,
                audit_annotations=notes,
            )
    patch = _list_changes(verdict)
    return AdmissionAnswer(warnings=warnings, patch=patch, audit_annotations=notes)


def _answer_cel_mutating(verdict: Verdict) -> AdmissionAnswer:
    errors = [
        f"Policy {result.policy.name}: {result.message}"
        for result in verdict.results
        if result.status is Status.ERROR and (result.action is Action.ENFORCE or result.over_limit)
    ]
    if errors:
        kind, namespace, name = read_resource_name(verdict.request)
        message = f"Resource: {namespace}/{name}, Kind: {kind}, Errors: [{' '.join(errors)}]"
        return AdmissionAnswer(allowed=False, message=message)
    warnings = tuple(r.message for r in verdict.results if r.status is Status.WARN)
    return AdmissionAnswer(warnings=warnings, patch=_list_changes(verdict))


def _blocks(result: Result, options: AnswerOptions) -> bool:
    if result.action is not Action.ENFORCE or result.status not in _BROKEN:
        return False
    return result.status is Status.FAIL or _is_closed(result, options)


def _is_closed(error: Result, options: AnswerOptions) -> bool:
    # The registry of an image must not decide by its silence whether the image is let in.
    is_about_images = error.type is RuleType.IMAGE_VERIFY
    return is_about_images or error.over_limit or options.fails_closed(error.policy)


def _blocks_change(result: Result, options: AnswerOptions) -> bool:
    """A mutation that fails blocks the request, even if the policy only audits."""
    if result.status is Status.ERROR:
        return _is_closed(result, options)
    return result.status is Status.FAIL and result.action is Action.ENFORCE


def _describe_refusal(request: Request, results: Iterable[Result]) -> str:
    failures: dict[str, dict[str, str]] = {}
    for result in results:
        failures.setdefault(result.policy.name, {})[result.rule] = result.message
    kind, namespace, name = read_resource_name(request)
    return (
        f"\n\nresource {kind}/{namespace}/{name} was blocked due to the following policies \n\n"
        f"{render_refusal(failures)}"
    )


def _explain_deletion(request: Request, blocking: Iterable[Result], options: AnswerOptions) -> str:
    """Why a deletion was evaluated: the rule matches all operations, which is rarely intended."""
    if request.operation is not Operation.DELETE:
        return ""
    rules = dict.fromkeys(
        f"{each.policy.name}.{each.rule}"
        for each in blocking
        if (each.policy.key, each.rule) in options.any_operation
    )
    return "".join(
        f"\nnote that {rule} names no operations, and so refuses deletions, too: add operations "
        "(such as [CREATE, UPDATE]) to its match\n"
        for rule in rules
    )


def _describe_failed_change(policy: PolicyRef, results: Iterable[Result]) -> str:
    failed = " ".join(
        f"{r.rule}: {r.message}" for r in results if r.policy == policy and r.status in _BROKEN
    )
    name = policy.name
    return f"mutation policy {name} error: failed to apply policy {name} rules [{failed}]"


def _warn_classic(results: Iterable[Result], options: AnswerOptions) -> Iterator[str]:
    """Failures that do not block, and changes of policies that report them as warnings."""
    for result in results:
        is_change = result.status is Status.PASS and result.patched is not None
        if result.status not in _TOLD and not is_change:
            continue
        if result.policy.key in options.warning or (not is_change and _is_vital(result)):
            yield f"policy {result.policy.name}.{result.rule}: {result.message}"


def _is_vital(result: Result) -> bool:
    """Whether the caller is warned even if the policy does not emit warnings."""
    return result.action is Action.ENFORCE or result.type is RuleType.MUTATION


def _phrase(result: Result) -> str:
    return f"Policy {result.policy.name} {_VERBS[result.status]}: {result.message}"


def _list_changes(verdict: Verdict) -> tuple[JsonObject, ...]:
    before, after = verdict.request.object, verdict.patched
    if after is None or after is before:
        return ()
    if verdict.request.operation is Operation.CONNECT:
        before, after = _as_sent(verdict.request, after)
    return tuple(diff(before, after))


def _as_sent(request: Request, after: JsonObject) -> tuple[JsonObject | None, JsonObject]:
    """The options of a CONNECT request as they came, before they were given a namespace.

    A patch must fit what the API server sent.
    """
    placed = request.object or {}
    sent = (request.admission or {}).get("object")
    if not isinstance(sent, dict) or "metadata" in sent or "metadata" not in placed:
        return request.object, after
    if after.get("metadata") == placed["metadata"]:
        after = {name: value for name, value in after.items() if name != "metadata"}
    return sent, after
