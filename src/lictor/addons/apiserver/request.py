"""A request: its user, its object, its options."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from urllib.parse import parse_qsl, unquote

import msgspec

from lictor.addons.apiserver.bodies import FieldValidation
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import Catalogue, ServedKind
from lictor.addons.apiserver.status_errors import (
    bad_request,
    invalid_object,
    no_such_resource,
    not_acceptable,
)
from lictor.core.errors import RefusedRequestError
from lictor.core.model.request import Operation
from lictor.core.raw import JsonObject

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
        detail = f'Unsupported value: ["{text[:40]}"]: supported values: "All"'
        raise refuse_options(options, Cause("FieldValueNotSupported", detail, "dryRun"))
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
        detail = f'Unsupported value: "{text[:40]}": supported values: {listed}'
        cause = Cause("FieldValueNotSupported", detail, "fieldValidation")
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
    """The field manager: as given, or the name of the client program."""
    named = parameters.get("fieldManager")
    if named:
        if len(named.encode()) > _MAX_MANAGER:
            detail = f"Too long: may not be more than {_MAX_MANAGER} bytes"
            raise refuse_options(options, Cause("FieldValueTooLong", detail, "fieldManager"))
        if not named.isprintable():
            detail = f"Invalid value: {named!r}: should only contain printable characters"
            raise refuse_options(options, Cause("FieldValueInvalid", detail, "fieldManager"))
        return named
    agent = user_agent.decode("utf-8", "replace").partition("/")[0]
    return "".join([each for each in agent[:128] if each.isprintable()])


_ACCEPTED = ("application/json",)
_WILD = frozenset(("*/*", "application/*", "application/json"))
_META = "meta.k8s.io"


class ObjectForm(StrEnum):
    """What is made of objects."""

    OBJECT = "Object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


class AcceptedForm(msgspec.Struct, frozen=True):
    """A form, in a version of it."""

    form: ObjectForm = ObjectForm.OBJECT
    version: str = "v1"


_FORMS = {
    "Table": ObjectForm.TABLE,
    "PartialObjectMetadata": ObjectForm.METADATA,
    "PartialObjectMetadataList": ObjectForm.METADATA,
}


@lru_cache(maxsize=256)
def read_accept(header: bytes) -> AcceptedForm:
    """The first form that the client names and we know; raises RefusedRequestError 406."""
    text = header.decode("latin-1")
    if not text.strip():
        return AcceptedForm()
    for clause in text.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in _WILD:
            continue
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        if "as" not in named:
            return AcceptedForm()
        form = _FORMS.get(named["as"])
        version = named.get("v", "")
        if form is not None and named.get("g") == _META and version in ("v1", "v1beta1"):
            return AcceptedForm(form, version)
    raise not_acceptable(_ACCEPTED)


# What may stand behind the name of a namespace without being a kind of object in it.
_OF_NAMESPACES = frozenset(("status", "finalize"))


class ResourceRoute(msgspec.Struct, frozen=True):
    """A kind, and perhaps one object of it; what is empty was not named."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def is_resource_path(path: str) -> bool:
    """Does it name objects? All else is about the server itself."""
    parts = path.strip("/").split("/", 4)
    if parts[0] == "api":
        return len(parts) > 2
    return parts[0] == "apis" and len(parts) > 3


def find_route(catalogue: Catalogue, path: str) -> ResourceRoute:
    """What a path names; raises RefusedRequestError 404 where there is no such kind."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not _is_part(group, rest):
        namespace, rest = rest[1], rest[2:]
    kind = catalogue.find(group, version, rest[0])
    # Behind `proxy` stands a path of something else.
    if kind is None or not all(rest[:3]):
        raise no_such_resource()
    # Cluster-scoped objects have no path in a namespace.
    if namespace and not kind.namespaced:
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if len(rest) > 3 and subresource != "proxy":
        raise no_such_resource()
    if name and kind.namespaced and not namespace:
        raise no_such_resource()
    return ResourceRoute(kind, namespace, name, subresource)


def _is_part(group: str, rest: list[str]) -> bool:
    """Is it a namespace's own subresource, such as `namespaces/x/finalize`?"""
    return not group and len(rest) == 3 and rest[2] in _OF_NAMESPACES


class ApiUser(msgspec.Struct, frozen=True):
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class RequestAttributes(msgspec.Struct, frozen=True):
    """One request on one kind of object. For other paths there is only a user and a path."""

    user: ApiUser
    # get, list, watch, create, update, patch, delete, deletecollection
    verb: str
    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # None where nothing is written.
    operation: Operation | None = None
    dry_run: bool = False
    # CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, as admission shows them.
    options: JsonObject = msgspec.field(default_factory=dict)
    field_manager: str = ""
