"""Kubernetes' `authorizer.group("").resource("pods").check("get").allowed()`.

A check is built up as a map of what is asked; only `check` asks the authorizer.
"""

from lictor.errors import FunctionError
from lictor.lang.cel.host import AuthorizerCheck, current_host
from lictor.lang.cel.library.kubernetes_texts import FORMATS
from lictor.lang.cel.types import member
from lictor.raw import Json, JsonObject


def _ask_path(asked: JsonObject, path: str) -> JsonObject:
    if not path.strip():
        raise FunctionError("path must not be empty")
    return {**asked, "path": path}


def _ask_resource(asked: JsonObject, resource: str) -> JsonObject:
    if not resource.strip():
        raise FunctionError("resource must not be empty")
    return {**asked, "resource": resource}


def _ask_as(asked: JsonObject, namespace: str, name: str) -> JsonObject:
    if FORMATS["dns1123Subdomain"](name):
        raise FunctionError("Invalid service account name")
    if FORMATS["dns1123Label"](namespace):
        raise FunctionError("Invalid service account namespace")
    return {**asked, "service_account": [namespace, name]}


def _check(asked: JsonObject, verb: str) -> JsonObject:
    account, groups = asked.get("service_account"), asked.get("groups") or ()
    rest = {key: text for key, text in asked.items() if key not in ("service_account", "groups")}
    question = AuthorizerCheck(
        verb,
        service_account=tuple(account) if account else None,
        groups=tuple(groups),
        **rest,
    )
    answer = current_host.get().authorize(question)
    return {"allowed": answer.allowed, "reason": answer.reason, "error": answer.error}


def _adding(field: str) -> Json:
    return lambda asked, value: {**asked, field: value}


def request_resource(asked: JsonObject, caller: JsonObject) -> JsonObject:
    """The value of `authorizer.requestResource`: a check of what the request itself is about.

    `asked` has group, resource, subresource, namespace and name; `caller` user and groups.
    """
    return {"kubernetes.authorization.ResourceCheck": {**caller, **asked}}


def authorizer(caller: JsonObject) -> JsonObject:
    """The value of `authorizer`; the caller has `user` and `groups`, or is not known."""
    return {"kubernetes.authorization.Authorizer": caller}


AUTHORIZER_OVERLOADS = (
    member("path", "Authorizer, string -> PathCheck", _ask_path),
    member("group", "Authorizer, string -> GroupCheck", _adding("group")),
    member("serviceAccount", "Authorizer, string, string -> Authorizer", _ask_as),
    member("resource", "GroupCheck, string -> ResourceCheck", _ask_resource),
    member("subresource", "ResourceCheck, string -> ResourceCheck", _adding("subresource")),
    member("namespace", "ResourceCheck, string -> ResourceCheck", _adding("namespace")),
    member("name", "ResourceCheck, string -> ResourceCheck", _adding("name")),
    member("fieldSelector", "ResourceCheck, string -> ResourceCheck", _adding("field_selector")),
    member("labelSelector", "ResourceCheck, string -> ResourceCheck", _adding("label_selector")),
    member("check", "PathCheck, string -> Decision", _check),
    member("check", "ResourceCheck, string -> Decision", _check),
    member("allowed", "Decision -> bool", lambda decision: decision["allowed"]),
    member("reason", "Decision -> string", lambda decision: decision["reason"]),
    member("errored", "Decision -> bool", lambda decision: bool(decision["error"])),
    member("error", "Decision -> string", lambda decision: decision["error"]),
)
