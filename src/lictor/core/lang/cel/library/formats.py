"""Named formats: format.dns1123Label().validate('...')."""

import re
from collections.abc import Callable
from datetime import date
from typing import ClassVar, TypeAlias

from lictor.core.lang.cel.functions import Library
from lictor.core.lang.cel.values import NONE, Optional, StrictOpaque
from lictor.core.lang.url import parse_url

Validate: TypeAlias = Callable[[str], list[str]]
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
    ", and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    f"validation is '{_SUBDOMAIN}')"
)
_DNS1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS1035}')"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_LABEL_VALUE}')"
)
_UUID = re.compile("-?".join(f"[0-9a-fA-F]{{{count}}}" for count in (8, 4, 4, 4, 12)))
_BASE64 = re.compile(
    "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _matching(pattern: str, limit: int, message: str, unit: str = "characters") -> Validate:
    # re: linear - each part of these names ends at a dot
    fits = re.compile(pattern).fullmatch

    def validate(text: str) -> list[str]:
        too_long = [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []
        return too_long + ([] if fits(text) else [message])

    return validate


def _prefix_of(validate: Validate) -> Validate:
    # A prefix may end in a dash; Kubernetes cuts one letter more than that, and so do we.
    def validate_prefix(text: str) -> list[str]:
        return validate(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return validate_prefix


def _simple(fits: Callable[[str], object], message: str) -> Validate:
    return lambda text: [] if fits(text) else [message]


_validate_plain_label = _matching(_LABEL, 63, _LABEL_MESSAGE)
_fits_subdomain = re.compile(_SUBDOMAIN).fullmatch  # re: linear - labels end at their dots


def _validate_label(text: str) -> list[str]:
    problems = _validate_plain_label(text)
    has_dots = "." in text and _fits_subdomain(text) is not None
    return [p if p != _LABEL_MESSAGE or not has_dots else "must not contain dots" for p in problems]


_validate_subdomain = _matching(_SUBDOMAIN, 253, _SUBDOMAIN_MESSAGE)
_validate_dns1035 = _matching(_DNS1035, 63, _DNS1035_MESSAGE)
_validate_name = _matching(_QUALIFIED, 63, _QUALIFIED_MESSAGE, "bytes")


def _validate_qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.partition("/")
    if "/" in name:
        message = f"a valid label key {_QUALIFIED_MESSAGE}"
        return [
            f"{message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if not slash:
        prefix, name = "", text
    faults = []
    if slash and not prefix:
        faults = ["prefix part must be non-empty"]
    elif slash:
        faults = [f"prefix part {message}" for message in _validate_subdomain(prefix)]
    faults += [] if name else ["name part must be non-empty"]
    return faults + [f"name part {message}" for message in _validate_name(name)]


def _validate_uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except ValueError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return bool(_DATE.fullmatch(text))


def _is_moment(text: str) -> bool:
    day, _, clock = text.lower().partition("t")
    found = _CLOCK.fullmatch(clock.partition("t")[0])
    return bool(
        _is_date(day) and found and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"
    )


FORMATS: dict[str, Validate] = {
    "dns1123Label": _validate_label,
    "dns1123Subdomain": _validate_subdomain,
    "dns1035Label": _validate_dns1035,
    "qualifiedName": _validate_qualified_name,
    "dns1123LabelPrefix": _prefix_of(_validate_label),
    "dns1123SubdomainPrefix": _prefix_of(_validate_subdomain),
    "dns1035LabelPrefix": _prefix_of(_validate_dns1035),
    "labelValue": _matching(_LABEL_VALUE, 63, _LABEL_VALUE_MESSAGE, "bytes"),
    "uri": _validate_uri,
    "uuid": _simple(_UUID.fullmatch, "does not match the UUID format"),
    "byte": _simple(_BASE64.fullmatch, "invalid base64"),
    "date": _simple(_is_date, "invalid date"),
    "datetime": _simple(_is_moment, "invalid datetime"),
}


# How long Kubernetes takes the regular expression of a format to be, for the cost.
_SIZES = {
    "dns1123Subdomain": 60, "dns1123SubdomainPrefix": 60, "qualifiedName": 60, "labelValue": 40,
    "uri": 1103, "uuid": 72, "byte": 84, "date": 72, "datetime": 72,
}  # fmt: skip


class FormatValue(StrictOpaque):
    """A named format."""

    name: str
    type_name: ClassVar[str] = "kubernetes.NamedFormat"

    @property
    def pattern_size(self) -> int:
        return _SIZES.get(self.name, 30)


def _validate(value: FormatValue, text: str) -> Optional:
    problems = FORMATS[value.name](text)
    return Optional((problems,)) if problems else NONE


_F = "kubernetes.NamedFormat"
NAMED_FORMATS = Library(
    (f"{_F}::validate(string) -> optional(list(string))", _validate),
    (
        f"format.named(string) -> optional({_F})",
        lambda name: Optional((FormatValue(name),)) if name in FORMATS else NONE,
    ),
    *[(f"format.{name}() -> {_F}", lambda name=name: FormatValue(name)) for name in FORMATS],
)
