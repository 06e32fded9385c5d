"""Webhook configurations, compiled: which webhooks does a request concern, and in which order?"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from lictor.addons.apiserver.field_checks import compile_fit
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text, read_texts
from lictor.addons.apiserver.kind import ObjectReader, ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.submission import Submission, convert, describe_request
from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.admission_policy import MUTATING_KIND, VALIDATING_KIND
from lictor.core.lang.label_selector import MapTest
from lictor.core.model.matching import MatchCondition
from lictor.core.model.request import Operation
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject

# Do all conditions hold? Raises EvaluationError if that cannot be decided.
MatchConditionTest: TypeAlias = Callable[[Submission, ServedKind | None], bool]
GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
_EXEMPT = frozenset(
    (
        "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
        VALIDATING_KIND, f"{VALIDATING_KIND}Binding", MUTATING_KIND, f"{MUTATING_KIND}Binding",
    )
)  # fmt: skip
# Requests for an answer that is never stored. Kubernetes calls no webhooks for them since 1.37.
_REVIEWS = {
    "authentication.k8s.io": frozenset(("SelfSubjectReview", "TokenReview")),
    "authorization.k8s.io": frozenset(
        (
            "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
            "SubjectAccessReview",
        )
    ),
}  # fmt: skip
_TIMEOUT = 10
_MAX_CLASSES = 4096
# One storage serves both.
_EVENT_GROUPS = frozenset(("", "events.k8s.io"))


class WebhookAddress(msgspec.Struct, frozen=True):
    """Where a webhook is: a URL, or a Service."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    path: str = ""
    port: int = 443
    ca: bytes = b""


class WebhookRule(msgspec.Struct, frozen=True):
    """One rule of a webhook."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str

    def takes(
        self, operation: Operation, kind: ServedKind, subresource: str, *, inside: bool
    ) -> bool:
        """Does the rule select this? `inside`: the request is in a namespace."""
        if self.scope != "*" and inside is not (self.scope == "Namespaced"):
            return False
        return (
            ("*" in self.operations or operation in self.operations)
            and ("*" in self.groups or kind.group in self.groups)
            and ("*" in self.versions or kind.version in self.versions)
            and any(
                name in ("*", kind.plural) and part in ("*", subresource)
                for name, part in self.resources
            )
        )


class Webhook(msgspec.Struct, frozen=True, eq=False):
    """One webhook of a configuration."""

    name: str
    address: WebhookAddress
    rules: tuple[WebhookRule, ...]
    is_equivalent: bool
    fits_namespace: MapTest | None
    fits_object: MapTest | None
    conditions: MatchConditionTest | None
    is_ignored: bool
    seconds: int
    side_effects: str
    is_reinvoked: bool
    versions: tuple[str, ...]


class MatchedWebhook(msgspec.Struct, frozen=True):
    """A webhook whose rules take a class of requests, in which version it wants to see them."""

    hook: Webhook
    # None: as they come.
    place: ServedKind | None


def is_exempt(kind: ServedKind) -> bool:
    """Is the kind exempt from webhooks and policies: their own kinds, and reviews?"""
    if kind.group == GROUP:
        return kind.kind in _EXEMPT
    return kind.kind in _REVIEWS.get(kind.group, ())


class WebhookIndex:
    """All webhooks of one sort, in Kubernetes' order; compiled when a configuration changes."""

    def __init__(
        self, reader: ObjectReader, catalogue: KindCatalogue, plural: str, lookups: Lookups
    ) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._plural = plural
        self._lookups = lookups
        self._hooks: tuple[Webhook, ...] | None = None
        self._compiled: dict[tuple[str, str], tuple[Webhook, ...]] = {}
        self._classes: dict[tuple[Json, ...], tuple[MatchedWebhook, ...]] = {}
        reader.on_change(GROUP, plural, self._forget)
        catalogue.listen(self._classes.clear)

    def candidates(self, submission: Submission) -> tuple[MatchedWebhook, ...]:
        """The webhooks whose rules take a request."""
        attributes = submission.attributes
        kind, subresource = attributes.kind, attributes.subresource
        inside = bool(submission.namespace) and not kind.is_namespace
        key = (kind.group, kind.version, kind.plural, subresource, submission.operation, inside)
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) >= _MAX_CLASSES:
                self._classes.clear()
            found = tuple(self._select(submission.operation, kind, subresource, inside=inside))
            self._classes[key] = found
        return found

    def _forget(self) -> None:
        self._hooks = None
        self._classes.clear()

    def _select(
        self, operation: Operation, kind: ServedKind, subresource: str, *, inside: bool
    ) -> Iterator[MatchedWebhook]:
        if is_exempt(kind):
            return
        others = [other for other in self._catalogue if _is_equivalent(kind, other)]
        for hook in self._list_hooks():
            if any(rule.takes(operation, kind, subresource, inside=inside) for rule in hook.rules):
                yield MatchedWebhook(hook, None)
            elif hook.is_equivalent:
                # Earlier rules count first.
                places = (
                    other
                    for rule in hook.rules
                    for other in others
                    if rule.takes(operation, other, subresource, inside=inside)
                )
                place = next(places, None)
                if place is not None:
                    yield MatchedWebhook(hook, place)

    def _list_hooks(self) -> tuple[Webhook, ...]:
        if self._hooks is None:
            fresh: dict[tuple[str, str], tuple[Webhook, ...]] = {}
            for document in self._reader.list(GROUP, self._plural):
                metadata = read_object(document, "metadata")
                key = (read_text(metadata, "name"), read_text(metadata, "resourceVersion"))
                fresh[key] = self._compiled.get(key) or compile_hooks(document, self._lookups)
            self._compiled = fresh
            self._hooks = tuple(hook for key in sorted(fresh) for hook in fresh[key])
        return self._hooks


def _is_equivalent(kind: ServedKind, other: ServedKind) -> bool:
    if other.plural != kind.plural or other is kind:
        return False
    if other.group == kind.group:
        return other.version != kind.version
    return kind.plural == "events" and {kind.group, other.group} == _EVENT_GROUPS


# --- from JSON


def compile_hooks(document: JsonObject, lookups: Lookups) -> tuple[Webhook, ...]:
    """The webhooks of a configuration."""
    hooks = (each for each in read_list(document, "webhooks") if isinstance(each, dict))
    return tuple(_compile_hook(each, lookups) for each in hooks)


def _compile_hook(webhook: JsonObject, lookups: Lookups) -> Webhook:
    ignored = read_text(webhook, "failurePolicy") == "Ignore"
    seconds = webhook.get("timeoutSeconds")
    return Webhook(
        name=read_text(webhook, "name"),
        address=_read_address(read_object(webhook, "clientConfig")),
        rules=tuple(_read_rule(rule) for rule in read_list(webhook, "rules")),
        is_equivalent=read_text(webhook, "matchPolicy") != "Exact",
        fits_namespace=compile_fit(webhook.get("namespaceSelector")),
        fits_object=compile_fit(webhook.get("objectSelector")),
        conditions=compile_conditions(
            read_list(webhook, "matchConditions"), lookups, ignore_errors=ignored
        ),
        is_ignored=ignored,
        seconds=seconds if isinstance(seconds, int) and seconds > 0 else _TIMEOUT,
        side_effects=read_text(webhook, "sideEffects"),
        is_reinvoked=read_text(webhook, "reinvocationPolicy") == "IfNeeded",
        versions=read_texts(webhook, "admissionReviewVersions"),
    )


def _read_rule(rule: Json) -> WebhookRule:
    parts = [each.partition("/") for each in read_texts(rule, "resources")]
    return WebhookRule(
        frozenset(read_texts(rule, "operations")),
        frozenset(read_texts(rule, "apiGroups")),
        frozenset(read_texts(rule, "apiVersions")),
        tuple((name, part) for name, _, part in parts),
        read_text(rule, "scope") or "*",
    )


def _read_address(config: JsonObject) -> WebhookAddress:
    service = read_object(config, "service")
    port = service.get("port")
    try:
        ca = b64decode(read_text(config, "caBundle"))
    except (binascii.Error, ValueError):
        ca = b""
    return WebhookAddress(
        url=read_text(config, "url"),
        namespace=read_text(service, "namespace"),
        service=read_text(service, "name"),
        path=read_text(service, "path"),
        port=port if isinstance(port, int) else 443,
        ca=ca,
    )


def compile_conditions(
    conditions: Sequence[Json], lookups: Lookups, *, ignore_errors: bool
) -> MatchConditionTest | None:
    """None without conditions. With `ignore_errors`, an undecided condition does not hold."""
    if not conditions:
        return None
    # The CEL engine is slow to load, and most webhooks have no conditions.
    from lictor.core.evaluate.cel.context import bind_host_functions
    from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
    from lictor.core.lang.cel.expression import make_activation
    from lictor.core.lang.cel.kubernetes import kubernetes_environment

    records = [
        MatchCondition(read_text(each, "name"), read_text(each, "expression"))
        for each in conditions
    ]
    language = ExpressionCompiler(
        kubernetes_environment(has_params=False),
        bind_host_functions(lookups, builtin_names()),
        lenient=True,
    )
    holds = compile_match_conditions(records, language, ignore_errors=ignore_errors)
    asks_access = any("authorizer" in record.expression for record in records)

    def decide(submission: Submission, place: ServedKind | None) -> bool:
        values = _show(submission, place)
        if asks_access:
            values |= _show_access(submission)
        return holds is None or holds(make_activation(values))

    return decide


def _show(submission: Submission, place: ServedKind | None) -> JsonObject:
    shown = "" if place is None else place.api_version
    document = convert(submission.document, shown)
    old = convert(submission.old, shown)
    request = describe_request(submission, place, with_objects=False)
    return {"object": document, "oldObject": old, "request": request, "namespaceObject": None}


def _show_access(submission: Submission) -> JsonObject:
    attributes = submission.attributes
    from lictor.core.lang.cel.library.host import make_authorizer, request_resource

    resource = {
        "group": attributes.kind.group,
        "resource": attributes.kind.plural,
        "subresource": attributes.subresource,
        "namespace": attributes.namespace,
        "name": submission.name,
    }
    caller = make_authorizer(attributes.user.name, attributes.user.groups)
    return {
        "authorizer": caller,
        "authorizer.requestResource": request_resource(caller, **resource),
    }
