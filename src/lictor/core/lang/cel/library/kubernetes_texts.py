"""Kubernetes' functions of texts: formats, URLs, regular expressions."""

import re
from collections.abc import Callable
from datetime import date

from lictor.core.errors import FunctionError, SyntaxFaultError
from lictor.core.lang.cel.types import function, member
from lictor.core.lang.regex import Regex, compile_regex
from lictor.core.lang.url import parse_url


def _compile_regex(expression: str) -> Regex:
    try:
        return compile_regex(expression)
    except SyntaxFaultError as error:
        raise FunctionError(f"Illegal regex: {error}") from None


def _find(text: str, expression: str) -> str:
    found = _compile_regex(expression).search(text)
    return (found.group() or "") if found else ""


def _find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    results: list[str] = []
    end = -1
    for found in _compile_regex(expression).finditer(text):
        if 0 <= limit <= len(results):
            break
        # As in Go, an empty match that touches the one before does not count.
        if found.end() > found.start() or found.start() != end:
            results.append(found.group() or "")
        end = found.end()
    return results


REGEX_OVERLOADS = (
    member("find", "string, string -> string", _find),
    member("findAll", "string, string -> list<string>", _find_all),
    member("findAll", "string, string, int -> list<string>", _find_all),
)


def _make_url(text: str) -> str:
    try:
        return str(parse_url(text))
    except ValueError as error:
        raise FunctionError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


URL_OVERLOADS = (
    function("url", "string -> URL", _make_url),
    function("isURL", "string -> bool", _is_url),
    member("getScheme", "URL -> string", lambda url: parse_url(url).scheme),
    member("getHost", "URL -> string", lambda url: parse_url(url).host),
    member("getHostname", "URL -> string", lambda url: parse_url(url).hostname),
    member("getPort", "URL -> string", lambda url: parse_url(url).port),
    member("getEscapedPath", "URL -> string", lambda url: parse_url(url).path),
    member("getQuery", "URL -> map<string,list<string>>", lambda url: parse_url(url).parse_query()),
)


Validate = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_LABEL_TOLD = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SUBDOMAIN_TOLD = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
    ", and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    f"validation is '{_SUBDOMAIN}')"
)
_DNS1035_TOLD = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS1035}')"
)
_QUALIFIED_TOLD = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
_LABEL_VALUE_TOLD = (
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


def _matching(pattern: str, limit: int, told: str, unit: str = "characters") -> Validate:
    # re: linear - parts of the names above are told apart by their dots
    fits = re.compile(pattern).fullmatch

    def validate(text: str) -> list[str]:
        too_long = [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []
        return too_long + ([] if fits(text) else [told])

    return validate


def _prefix_of(validate: Validate) -> Validate:
    # A prefix may end in a dash; Kubernetes cuts one letter more than that, and so do we.
    def validate_prefix(text: str) -> list[str]:
        return validate(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return validate_prefix


def _simple(fits: Callable[[str], object], told: str) -> Validate:
    return lambda text: [] if fits(text) else [told]


_validate_label = _matching(_LABEL, 63, _LABEL_TOLD)
_validate_subdomain = _matching(_SUBDOMAIN, 253, _SUBDOMAIN_TOLD)
_validate_dns1035 = _matching(_DNS1035, 63, _DNS1035_TOLD)
_validate_name = _matching(_QUALIFIED, 63, _QUALIFIED_TOLD, "bytes")


def _validate_qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.partition("/")
    if "/" in name:
        message = f"a valid label key {_QUALIFIED_TOLD}"
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
    "labelValue": _matching(_LABEL_VALUE, 63, _LABEL_VALUE_TOLD, "bytes"),
    "uri": _validate_uri,
    "uuid": _simple(_UUID.fullmatch, "does not match the UUID format"),
    "byte": _simple(_BASE64.fullmatch, "invalid base64"),
    "date": _simple(_is_date, "invalid date"),
    "datetime": _simple(_is_moment, "invalid datetime"),
}


def _validate(name: str, text: str) -> list[list[str]]:
    if name not in FORMATS:
        raise FunctionError("no such overload: validate")
    faults = FORMATS[name](text)
    return [faults] if faults else []


def _find_format(name: str) -> list[str]:
    return [name] if name in FORMATS else []


# Both answer a list of none or one, see rewriting.unwrap_lists.
FORMAT_OVERLOADS = (
    member("validate", "Format, string -> list<list<string>>", _validate),
    function("format.named", "string -> list<Format>", _find_format),
    *(function(f"format.{name}", "-> Format", lambda name=name: name) for name in FORMATS),
)
