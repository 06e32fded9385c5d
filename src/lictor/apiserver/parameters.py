"""What the query of a URL asks for, beside the path."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from lictor.apiserver.field_validation import FieldValidation
from lictor.apiserver.kind import Cause
from lictor.apiserver.status_errors import bad_request, invalid_object
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

Parameters = Mapping[str, str]
_MAX_FIELDS = 64
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False", ""))
_NONE: Parameters = {}
_MAX_MANAGER = 128


def read_parameters(query: bytes) -> Parameters:
    """The first value of each parameter."""
    if not query:
        return _NONE
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise bad_request("the query cannot be read") from error
    return dict(reversed(pairs))


def read_flag(parameters: Parameters, name: str) -> bool | None:
    """A parameter that is true or false; None where it is not there."""
    text = parameters.get(name)
    if text is None:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise bad_request(f'{name}: strconv.ParseBool: parsing "{text[:40]}": invalid syntax')


def read_count(parameters: Parameters, name: str) -> int | None:
    """A parameter that is a number; None where it is not there."""
    text = parameters.get(name)
    if not text:
        return None
    if not text.isdecimal() or len(text) > 15:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    return int(text)


def read_dry_run(parameters: Parameters, options: str) -> bool:
    """Shall everything happen but the writing?"""
    text = parameters.get("dryRun")
    if not text:
        return False
    if text != "All":
        told = f'Unsupported value: ["{text[:40]}"]: supported values: "All"'
        raise refuse_options(options, Cause("FieldValueNotSupported", told, "dryRun"))
    return True


def read_validation(parameters: Parameters, options: str) -> FieldValidation:
    """What happens to fields that the kind does not have."""
    text = parameters.get("fieldValidation")
    if not text:
        return FieldValidation.WARN
    try:
        return FieldValidation(text)
    except ValueError:
        listed = ", ".join(f'"{each}"' for each in ("", "Ignore", "Strict", "Warn"))
        told = f'Unsupported value: "{text[:40]}": supported values: {listed}'
        cause = Cause("FieldValueNotSupported", told, "fieldValidation")
        raise refuse_options(options, cause) from None


def refuse_options(options: str, cause: Cause) -> RefusedRequestError:
    """Options that make no sense, such as CreateOptions."""
    details: JsonObject = {"group": "meta.k8s.io", "kind": options}
    return invalid_object(f"{options}.meta.k8s.io", details, "", [cause])


def describe_options(parameters: Parameters, kind: str) -> JsonObject:
    """The options of a write, as admission shows them."""
    options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    for name in ("fieldManager", "fieldValidation"):
        if value := parameters.get(name):
            options[name] = value
    if value := parameters.get("dryRun"):
        options["dryRun"] = [value]
    if kind == "PatchOptions" and parameters.get("force") in _TRUE:
        options["force"] = True
    return options


def choose_manager(parameters: Parameters, user_agent: bytes, options: str) -> str:
    """Who shall own the fields that are written: as said, or the program that asks."""
    named = parameters.get("fieldManager")
    if named:
        if len(named.encode()) > _MAX_MANAGER:
            told = f"Too long: may not be more than {_MAX_MANAGER} bytes"
            raise refuse_options(options, Cause("FieldValueTooLong", told, "fieldManager"))
        if not named.isprintable():
            told = f"Invalid value: {named!r}: should only contain printable characters"
            raise refuse_options(options, Cause("FieldValueInvalid", told, "fieldManager"))
        return named
    agent = user_agent.decode("utf-8", "replace").partition("/")[0]
    return "".join([each for each in agent[:128] if each.isprintable()])
