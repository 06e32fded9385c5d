"""Kyverno's `resource.get(…)`, `globalContext.get`, `generator.apply`; patches of mutations.

What is read or generated goes through `host.current_host`.
"""

from collections.abc import Mapping

from lictor.core.errors import FunctionError, LookupFailedError
from lictor.core.lang.cel.host import current_host
from lictor.core.lang.cel.rewriting import FIELDS, SET_FIELDS
from lictor.core.lang.cel.types import Overload, function, member
from lictor.core.lang.cel.wire import OBJECT_MARK, PATCH_MARK
from lictor.core.raw import Json, JsonObject


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _fill_texts(patch: JsonObject) -> JsonObject:
    """All fields; a text that was not set is empty."""
    return {"op": "", "path": "", "from": "", "value": None, **patch}


def _drop_empty(patch: JsonObject) -> JsonObject:
    """The fields that are set: a text that is empty is not."""
    return {name: value for name, value in patch.items() if name == "value" or value != ""}


PATCH_OVERLOADS = (
    function("jsonpatch.escapeKey", "string -> string", _escape_key),
    # See `literals`.
    function(OBJECT_MARK, "dyn -> Object", lambda value: value),
    function(PATCH_MARK, "dyn -> JSONPatch", lambda value: value),
    # See `selections`.
    member(FIELDS, "Object -> map<string,dyn>", lambda value: value),
    member(SET_FIELDS, "Object -> map<string,dyn>", lambda value: value),
    member(FIELDS, "JSONPatch -> map<string,dyn>", _fill_texts),
    member(SET_FIELDS, "JSONPatch -> map<string,dyn>", _drop_empty),
)


def _generate(namespace: str, objects: list[Json]) -> bool:
    host = current_host.get()
    if host.namespace and namespace != host.namespace:
        raise FunctionError(
            f'cross-namespace generation denied: policy in "{host.namespace}" '
            f'cannot generate into "{namespace}"'
        )
    if not all(isinstance(each, dict) for each in objects):
        raise FunctionError("no such overload: apply takes a list of objects")
    try:
        host.generate(namespace, objects)
    except LookupFailedError as error:
        raise type(error)(f"failed to generate resources: {error}") from error
    return True


GENERATOR_OVERLOADS = tuple(
    function(f"generator.{name}", "string, list<map<string,dyn>> -> bool", _generate)
    for name in ("apply", "Apply")
)


def _get_entry(name: str, projection: str = "") -> Json:
    try:
        return current_host.get().global_context(name, projection)
    except LookupFailedError as error:
        raise type(error)(f"failed to get global reference: {error}") from error


GLOBAL_CONTEXT_OVERLOADS = tuple(
    function(f"globalContext.{name}", signature, _get_entry)
    for name in ("get", "Get")
    for signature in ("string -> dyn", "string, string -> dyn")
)


_OBJECT = "map<string,dyn>"
_LABELS = "map<string,string>"


def _get(api_version: str, resource: str, namespace: str, name: str) -> JsonObject | None:
    _stay_inside(namespace)
    try:
        return current_host.get().get_resource(api_version, resource, namespace, name)
    except LookupFailedError as error:
        raise _told(error, "failed to get resource") from error


def _get_here(api_version: str, resource: str, name: str) -> JsonObject | None:
    return _get(api_version, resource, current_host.get().namespace, name)


def _list(
    api_version: str, resource: str, namespace: str, labels: Mapping[str, Json] | None = None
) -> JsonObject:
    _stay_inside(namespace)
    wanted = {name: _as_text(value) for name, value in (labels or {}).items()}
    try:
        return current_host.get().list_resources(api_version, resource, namespace, wanted)
    except LookupFailedError as error:
        raise _told(error, "failed to list resource") from error


def _list_here(
    api_version: str, resource: str, labels: Mapping[str, Json] | None = None
) -> JsonObject:
    return _list(api_version, resource, current_host.get().namespace, labels)


def _post(api_version: str, resource: str, namespace: str, body: JsonObject) -> JsonObject:
    _stay_inside(namespace)
    try:
        return current_host.get().post_resource(api_version, resource, namespace, body)
    except LookupFailedError as error:
        raise _told(error, "failed to create resource") from error


def _post_here(api_version: str, resource: str, body: JsonObject) -> JsonObject:
    # In a policy without namespace, this is how to create what has none.
    return _post(api_version, resource, current_host.get().namespace, body)


def _find(api_version: str, kind: str) -> JsonObject:
    try:
        group, version, resource = current_host.get().find_resource(api_version, kind)
    except LookupFailedError as error:
        raise _told(error, "failed to map kind to resource") from error
    return {"Group": group, "Version": version, "Resource": resource}


def _stay_inside(namespace: str) -> None:
    """Also where an environment has the forms with a namespace: a policy of one sees no other."""
    own = current_host.get().namespace
    if own and namespace != own:
        raise FunctionError(f"a policy of namespace {own} sees nothing of {namespace or 'others'}")


def _told(error: LookupFailedError, what: str) -> LookupFailedError:
    return type(error)(f"{what}: {error}")


def _as_text(value: Json) -> str:
    if not isinstance(value, str):
        raise FunctionError("no such overload: a label's value must be a string")
    return value


def _split(found: JsonObject) -> tuple[str, str]:
    group, version = found["Group"], found["Version"]
    return (f"{group}/{version}" if group else version), found["Resource"]


def _both(name: str, signature: str, implementation: Json) -> tuple[Overload, Overload]:
    spelled = name[0].upper() + name[1:]
    return tuple(  # type: ignore[return-value]  # there are two
        function(f"resource.{each}", signature, implementation) for each in (name, spelled)
    )


_ANYWHERE = (
    *_both("toGVR", "string, string -> Gvr", _find),
    *_both("post", f"string, string, {_OBJECT} -> {_OBJECT}", _post_here),
)
CLUSTER_OVERLOADS = (
    *_ANYWHERE,
    *_both("get", f"string, string, string, string -> {_OBJECT}", _get),
    *_both(
        "get", f"Gvr, string, string -> {_OBJECT}", lambda gvr, *rest: _get(*_split(gvr), *rest)
    ),
    *_both("list", f"string, string, string -> {_OBJECT}", _list),
    *_both("list", f"string, string, string, {_LABELS} -> {_OBJECT}", _list),
    *_both("list", f"Gvr, string -> {_OBJECT}", lambda gvr, *rest: _list(*_split(gvr), *rest)),
    *_both(
        "list",
        f"Gvr, string, {_LABELS} -> {_OBJECT}",
        lambda gvr, *rest: _list(*_split(gvr), *rest),
    ),
    *_both("post", f"string, string, string, {_OBJECT} -> {_OBJECT}", _post),
)
NAMESPACED_OVERLOADS = (
    *_ANYWHERE,
    *_both("get", f"string, string, string -> {_OBJECT}", _get_here),
    *_both("get", f"Gvr, string -> {_OBJECT}", lambda gvr, name: _get_here(*_split(gvr), name)),
    *_both("list", f"string, string -> {_OBJECT}", _list_here),
    *_both("list", f"string, string, {_LABELS} -> {_OBJECT}", _list_here),
    *_both("list", f"Gvr -> {_OBJECT}", lambda gvr: _list_here(*_split(gvr))),
    *_both(
        "list", f"Gvr, {_LABELS} -> {_OBJECT}", lambda gvr, labels: _list_here(*_split(gvr), labels)
    ),
)
RESOURCE_OVERLOADS = (*CLUSTER_OVERLOADS, *NAMESPACED_OVERLOADS[len(_ANYWHERE) :])
