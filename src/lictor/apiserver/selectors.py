"""Label and field selectors of a query, as tests of objects."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

from lictor.apiserver.event_views import GROUP as EVENTS_GROUP
from lictor.apiserver.event_views import find_kept_field
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.status_errors import bad_request
from lictor.raw import Json, JsonObject

ObjectTest: TypeAlias = Callable[[JsonObject], bool]
_LabelTest: TypeAlias = Callable[[JsonObject], bool]

_NAME = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_LABEL = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_VALUE = re.compile(f"(?:{_NAME})?")
_SET = re.compile(rf"\s*({_LABEL})\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_COMPARISON = re.compile(rf"\s*({_LABEL})\s*(==|=|!=|>|<)\s*([^,\s()!=<>]*)\s*(?:,|$)")
_PRESENCE = re.compile(rf"\s*(!?)\s*({_LABEL})\s*(?:,|$)")

_EVERYWHERE = frozenset(("metadata.name", "metadata.namespace"))
_EVENT_FIELDS = frozenset(
    (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
    )
)  # fmt: skip
# Group and plural -> what else can be selected by.
_FIELDS: dict[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset(
        (
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
        )
    ),
    ("", "events"): _EVENT_FIELDS,
    ("", "namespaces"): frozenset(("status.phase", "name")),
    ("", "nodes"): frozenset(("spec.unschedulable",)),
    ("", "secrets"): frozenset(("type",)),
    ("", "services"): frozenset(("spec.clusterIP", "spec.type")),
    ("", "replicationcontrollers"): frozenset(("status.replicas",)),
    ("apps", "replicasets"): frozenset(("status.replicas",)),
    ("batch", "jobs"): frozenset(("status.successful",)),
    ("certificates.k8s.io", "certificatesigningrequests"): frozenset(("spec.signerName",)),
}  # fmt: skip
_FALSE_WHEN_MISSING = frozenset(("spec.unschedulable", "spec.hostNetwork"))
_ZERO_WHEN_MISSING = frozenset(("status.replicas", "status.successful"))


def compile_selectors(kind: ServedKind, labels: str, fields: str) -> ObjectTest | None:
    """One test for both selectors of a query; None where everything is wanted."""
    tests: list[ObjectTest] = []
    if labels.strip():
        wanted = _read_labels(labels)
        tests.append(lambda document: wanted(document["metadata"].get("labels") or {}))
    if fields.strip():
        tests.append(_compile_fields(kind, fields))
    if len(tests) == 2:
        first, second = tests
        return lambda document: first(document) and second(document)
    return tests[0] if tests else None


def find_single_name(fields: str) -> str:
    """The one name that a field selector asks for; empty where it asks for more."""
    for part in fields.split(","):
        key, operator, value = _split(part)
        if key == "metadata.name" and operator == "=":
            return value
    return ""


# --- labels


@lru_cache(maxsize=256)
def _read_labels(text: str) -> _LabelTest:
    tests = tuple(_parse_labels(text))
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all([test(labels) for test in tests])


def _parse_labels(text: str) -> Iterator[_LabelTest]:
    position = 0
    while position < len(text):
        if found := _SET.match(text, position):
            yield _build_set(*found.groups())
        elif found := _COMPARISON.match(text, position):
            yield _build_comparison(*found.groups())
        elif found := _PRESENCE.match(text, position):
            yield _build_presence(*found.groups())
        else:
            raise bad_request(f"unable to parse requirement: {text[position:].strip()[:200]!r}")
        position = found.end()


def _build_set(key: str, operator: str, values: str) -> _LabelTest:
    wanted = frozenset(_check_value(value.strip()) for value in values.split(","))
    if operator == "in":
        return lambda labels: key in labels and labels[key] in wanted
    return lambda labels: labels.get(key) not in wanted


def _build_comparison(key: str, operator: str, value: str) -> _LabelTest:
    if operator in "<>":
        return _build_order(key, operator, value)
    _check_value(value)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _build_order(key: str, operator: str, value: str) -> _LabelTest:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        raise bad_request(
            f'for ">" and "<" operators, the value must be an integer: {value[:63]!r}'
        )
    bound = int(value)

    def compare(labels: JsonObject) -> bool:
        found = labels.get(key)
        if not isinstance(found, str) or not re.fullmatch(r"[+-]?[0-9]{1,19}", found):
            return False
        return int(found) > bound if operator == ">" else int(found) < bound

    return compare


def _build_presence(negation: str, key: str) -> _LabelTest:
    if negation:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _check_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise bad_request(f"unable to parse requirement: values: Invalid value: {value[:80]!r}")
    return value


# --- fields


def _compile_fields(kind: ServedKind, text: str) -> ObjectTest:
    more = _FIELDS.get((kind.group, kind.plural))
    known = _EVERYWHERE if more is None else _EVERYWHERE | more
    if kind.group == EVENTS_GROUP:
        known = _EVERYWHERE | _EVENT_FIELDS
        text = ",".join(find_kept_field(part) for part in text.split(","))
    is_plain = known is _EVERYWHERE and not kind.is_custom
    tests = [_compile_field(part, known, is_plain=is_plain) for part in text.split(",") if part]
    return lambda document: all([test(document) for test in tests])


def _compile_field(part: str, known: frozenset[str], *, is_plain: bool) -> ObjectTest:
    key, operator, value = _split(part)
    if not operator:
        raise bad_request(f"invalid selector: {part[:200]!r}; can't understand {part[:200]!r}")
    if key not in known:
        if not is_plain:
            raise bad_request(f"field label not supported: {key[:200]}")
        listed = ", ".join(f'"{each}"' for each in sorted(known))
        raise bad_request(f'"{key[:200]}" is not a known field selector: only {listed}')
    path = ("metadata", "name") if key == "name" else tuple(key.split("."))
    if key == "status.successful":
        path = ("status", "succeeded")
    elif key == "source":
        path = ("source", "component")
    elif key == "reportingComponent":
        path = ("reportingComponent",)
    missing = _text_when_missing(key)
    wanted = operator == "="
    return lambda document: (_read_text(document, path, missing) == value) is wanted


def _text_when_missing(key: str) -> str:
    if key in _FALSE_WHEN_MISSING:
        return "false"
    return "0" if key in _ZERO_WHEN_MISSING else ""


def _split(part: str) -> tuple[str, str, str]:
    for sign, operator in (("!=", "!"), ("==", "="), ("=", "=")):
        key, found, value = part.partition(sign)
        if found:
            return key.strip(), operator, _unescape(value)
    return part, "", ""


def _unescape(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


def _read_text(document: Json, path: tuple[str, ...], missing: str) -> str:
    value = document
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None or value == "":
        return missing
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
