"""Questions about access that are put as objects: created, answered, never kept."""

from collections.abc import Callable
from typing import Final

import orjson

from lictor.addons.apiserver.access.authentication import Authentication
from lictor.addons.apiserver.access.authorization import Authorization, RbacRule, read_question
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.json_fields import read_object, read_text, read_texts
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.objects import read_clock
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.service_account_tokens import ServiceTokens
from lictor.addons.apiserver.status_errors import bad_request, invalid_object
from lictor.addons.apiserver.submission import describe_user
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject

_GROUP: Final = "authorization.k8s.io"
_GROUPS: Final = (_GROUP, "authentication.k8s.io")
_Answer = Callable[[ServedKind, ApiUser, JsonObject, str], JsonObject]


class AccessReviews:
    """Answers reviews about the users and rights of one server."""

    def __init__(
        self,
        authentication: Authentication,
        authorization: Authorization,
        service_tokens: ServiceTokens,
    ) -> None:
        self._authentication = authentication
        self._authorization = authorization
        self._service_tokens = service_tokens
        self._answers: dict[str, _Answer] = {
            "selfsubjectaccessreviews": self._review_own_access,
            "subjectaccessreviews": self._review_access,
            "localsubjectaccessreviews": self._review_access,
            "selfsubjectrulesreviews": self._review_rules,
            "selfsubjectreviews": _review_self,
            "tokenreviews": self._review_token,
        }

    def answer(
        self, kind: ServedKind, user: ApiUser, document: JsonObject, namespace: str = ""
    ) -> JsonObject | None:
        """The review with its status; `user` is the caller. None if the kind is no review."""
        answer = self._answers.get(kind.plural) if kind.group in _GROUPS else None
        return None if answer is None else answer(kind, user, document, namespace)

    # --- authorization.k8s.io

    def _review_own_access(
        self, _: ServedKind, user: ApiUser, document: JsonObject, __: str
    ) -> JsonObject:
        spec = read_object(document, "spec")
        _check_one(spec)
        return {**document, "status": self._decide(spec, user)}

    def _review_access(
        self, kind: ServedKind, _: ApiUser, document: JsonObject, namespace: str
    ) -> JsonObject:
        spec = read_object(document, "spec")
        _check_one(spec)
        if not read_text(spec, "user") and not read_texts(spec, "groups"):
            detail = 'Invalid value: "": at least one of user or group must be specified'
            raise _invalid(detail, "spec.user")
        if not kind.namespaced:
            return {**document, "status": self._decide(spec, None)}
        found = read_text(read_object(spec, "resourceAttributes"), "namespace")
        if found != namespace:
            detail = f'Invalid value: "{found}": must match metadata.namespace'
            raise _invalid(detail, "spec.resourceAttributes.namespace")
        metadata = {**read_object(document, "metadata"), "namespace": namespace}
        status = self._decide(spec, None)
        return {**document, "metadata": metadata, "status": status}

    def _decide(self, spec: JsonObject, user: ApiUser | None) -> JsonObject:
        allowed, reason = self._authorization.decide(read_question(spec, user))
        status: JsonObject = {"allowed": allowed}
        if reason:
            status["reason"] = reason
        return status

    def _review_rules(
        self, kind: ServedKind, user: ApiUser, document: JsonObject, _: str
    ) -> JsonObject:
        namespace = read_text(read_object(document, "spec"), "namespace")
        if not namespace:
            raise bad_request("no namespace on request")
        rules = [
            rule
            for grant in self._authorization.rbac.grants_of(user)
            if grant.namespace in ("", namespace)
            for rule in grant.rules
        ]
        return {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {},
            "spec": {},
            "status": {
                "resourceRules": [_show_rule(rule) for rule in rules if rule.resources],
                "nonResourceRules": [
                    {"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)}
                    for rule in rules
                    if rule.paths
                ],
                "incomplete": False,
            },
        }

    # --- authentication.k8s.io

    def _review_token(
        self, _: ServedKind, __: ApiUser, document: JsonObject, ___: str
    ) -> JsonObject:
        spec = read_object(document, "spec")
        token = read_text(spec, "token")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = read_texts(spec, "audiences")
        user = self._authentication.read_token(token, audiences)
        if user is None:
            detail = "invalid bearer token"
            return {**document, "status": {"user": {}, "error": detail}}
        meant = self._service_tokens.audiences_of(token, audiences)
        status: JsonObject = {"authenticated": True, "user": describe_user(user)}
        if meant:
            status["audiences"] = list(meant)
        return {**document, "status": status}


def _review_self(kind: ServedKind, user: ApiUser, _: JsonObject, __: str) -> JsonObject:
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {"creationTimestamp": read_clock()},
        "status": {"userInfo": describe_user(user)},
    }


def _show_rule(rule: RbacRule) -> JsonObject:
    shown = {
        "verbs": sorted(rule.verbs),
        "apiGroups": sorted(rule.groups),
        "resources": sorted(rule.resources),
    }
    if rule.names:
        shown["resourceNames"] = sorted(rule.names)
    return shown


def _check_one(spec: JsonObject) -> None:
    """A review concerns either a resource or a path."""
    given = [spec.get(field) is not None for field in _SUBJECTS]
    if all(given):
        path = read_object(spec, "nonResourceAttributes")
        shown = {"Path": read_text(path, "path"), "Verb": read_text(path, "verb")}
        raise _invalid(
            f"Invalid value: {orjson.dumps(shown).decode()}: cannot be specified in combination "
            "with resourceAttributes",
            "spec.nonResourceAttributes",
        )
    if not any(given):
        raise _invalid(
            "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must "
            "be specified",
            "spec.resourceAttributes",
        )


_SUBJECTS = ("resourceAttributes", "nonResourceAttributes")


def _invalid(detail: str, field: str) -> RefusedRequestError:
    # The API server does not name the kind of a review here.
    cause = Cause("FieldValueInvalid", detail, field)
    return invalid_object(f".{_GROUP}", {"group": _GROUP}, "", [cause])
