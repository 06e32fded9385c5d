"""What the CEL policies of one engine share, and the external data for their expressions."""

from collections.abc import Mapping

import msgspec

from lictor.core.errors import LookupFailedError, NotFoundError, NotProvidedError
from lictor.core.evaluate.cel.views import RequestViews
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.lang.cel.host import AuthorizerCheck, AuthorizerDecision, HostFunctions, HttpCall
from lictor.core.lang.cel.kubernetes import LATEST, kubernetes_environment
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.networks import BLOCKED_HOSTS, BLOCKED_NETWORKS
from lictor.core.lang.url import escape_segment
from lictor.core.lang.watch import WatchRule, watch_nothing
from lictor.core.model.cel_policy import CelException
from lictor.core.model.request import GroupVersionKind
from lictor.core.ports import ApiCall, HttpAnswer, HttpLimits, Lookups, RegistryAccess
from lictor.core.raw import Json, JsonObject

_NO_LIMITS_TOLD = HttpLimits()
_ACCESS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def bind_host_functions(
    lookups: Lookups,
    names: ResourceNames,
    namespace: str = "",
    limits: HttpLimits = _NO_LIMITS_TOLD,
) -> HostFunctions:
    """Functions for expressions; those of a namespaced policy see their namespace only."""
    reader = _Reader(lookups, names, namespace)
    inside = (*BLOCKED_NETWORKS, *BLOCKED_HOSTS)
    return HostFunctions(
        get_resource=reader.get,
        list_resources=reader.list,
        post_resource=reader.post,
        find_resource=reader.find,
        global_context=reader.global_context,
        image_data=reader.image_data,
        http=reader.http,
        authorize=reader.authorize,
        now=lookups.now,
        namespace=namespace,
        allows_http=not namespace or limits.allows_namespaced,
        blocked_urls=inside if limits.blocked is None else limits.blocked,
        allowed_urls=limits.allowed,
    )


class _Reader(msgspec.Struct, frozen=True):
    lookups: Lookups
    names: ResourceNames
    # The namespace of the policy; empty if it has none.
    own: str

    def image_data(self, reference: str) -> JsonObject:
        return self.lookups.image_data(
            reference, RegistryAccess(namespace=self.own, named=frozenset())
        )

    def authorize(self, question: AuthorizerCheck) -> AuthorizerDecision:
        """The decision of the API server's authorizers."""
        self._check_question(question)
        call = ApiCall(_ACCESS_PATH, "POST", _review_access(question))
        try:
            answer = self.lookups.call_api(call)
        except NotProvidedError:
            raise NotProvidedError("no authorizer available") from None
        status = answer.get("status") if isinstance(answer, dict) else None
        status = status if isinstance(status, dict) else {}
        return AuthorizerDecision(
            status.get("allowed") is True,
            str(status.get("reason") or ""),
            str(status.get("evaluationError") or ""),
        )

    def _check_question(self, question: AuthorizerCheck) -> None:
        """A namespaced policy must not learn about rights in other namespaces."""
        account = question.service_account
        is_foreign = account is not None and account[0] != self.own
        if self.own and (is_foreign or question.namespace != self.own):
            raise LookupFailedError(
                f"a policy of namespace {self.own} may only check rights in that namespace"
            )

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> JsonObject:
        kind = self._kind(api_version, resource, namespace)
        if kind is None:
            found = self.lookups.call_api(ApiCall(_path(api_version, resource, namespace, name)))
        else:
            found = self.lookups.resource(api_version, kind, namespace, name)
        if not isinstance(found, dict):
            raise LookupFailedError(f'{resource} "{name}" not found')
        return found

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> JsonObject:
        kind = self._kind(api_version, resource, namespace)
        if kind is None:
            answer = self.lookups.call_api(ApiCall(_path(api_version, resource, namespace)))
            items = answer.get("items") if isinstance(answer, dict) else None
            found = items if isinstance(items, list) else []
        else:
            found = self.lookups.resources(api_version, kind, namespace)
        items = [item for item in found if _has_labels(item, labels)]
        return {"apiVersion": api_version, "kind": f"{kind or ''}List", "items": items}

    def post(self, api_version: str, resource: str, namespace: str, body: JsonObject) -> JsonObject:
        path = _path(api_version, resource, namespace)
        answer = self.lookups.call_api(ApiCall(path, method="POST", data=body))
        if not isinstance(answer, dict):
            raise LookupFailedError(f"no object came back from {path}")
        return answer

    def find(self, api_version: str, kind: str) -> tuple[str, str, str]:
        group, _, version = api_version.rpartition("/")
        found = self.names.of_kind(group, version, kind)
        return found.group, found.version, found.resource

    def global_context(self, name: str, projection: str) -> Json:
        if self.own:
            raise LookupFailedError("globalContext.* is not allowed in namespaced policies")
        try:
            entry = f"{name}.{projection}" if projection else name
            return self.lookups.global_reference(entry)
        except NotFoundError:
            # A missing entry is null in expressions, as in Kyverno.
            return None

    def http(self, call: HttpCall) -> tuple[int, Json]:
        answer = self.lookups.call_api(
            ApiCall(
                method=call.method,
                data=call.body,
                service_url=call.url,
                headers=call.headers,
                ca_bundle=call.ca_bundle,
                guarded=True,
            )
        )
        return (answer.status, answer.body) if isinstance(answer, HttpAnswer) else (200, answer)

    def _kind(self, api_version: str, resource: str, namespace: str) -> str | None:
        group, _, version = api_version.rpartition("/")
        found = self.names.of_resource(group, version, resource)
        if found is None:
            return None
        if namespace and found.namespaced is False:
            # A namespaced policy must not see cluster-scoped objects.
            raise LookupFailedError(f"there are no {resource} in namespace {namespace}")
        return found.kind


def _path(api_version: str, resource: str, namespace: str, name: str = "") -> str:
    """The path of a collection or an object; `pods/log` is a subresource."""
    root = "apis" if "/" in api_version else "api"
    inside = f"namespaces/{escape_segment(namespace)}/" if namespace else ""
    group, _, version = api_version.rpartition("/")
    api = "/".join(escape_segment(part) for part in (group, version) if part)
    plural, _, part = resource.partition("/")
    rest = "/".join(escape_segment(each) for each in (plural, name, *part.split("/")) if each)
    return f"/{root}/{api}/{inside}{rest}"


def _review_access(question: AuthorizerCheck) -> JsonObject:
    user, groups = question.user, list(question.groups)
    if question.service_account is not None:
        namespace, name = question.service_account
        user = f"system:serviceaccount:{namespace}:{name}"
        everyone = "system:serviceaccounts"
        groups = [everyone, f"{everyone}:{namespace}", "system:authenticated"]
    spec: JsonObject = {"user": user, "groups": groups}
    if question.path:
        spec["nonResourceAttributes"] = {"path": question.path, "verb": question.verb}
    else:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        asked = {name: getattr(question, name) for name in names}
        spec["resourceAttributes"] = {name: text for name, text in asked.items() if text}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }


def _has_labels(item: Json, labels: Mapping[str, str]) -> bool:
    if not labels:
        return True
    metadata = item.get("metadata") if isinstance(item, dict) else None
    found = metadata.get("labels") if isinstance(metadata, dict) else None
    own = found if isinstance(found, dict) else {}
    return all(own.get(name) == value for name, value in labels.items())


class CelContext(msgspec.Struct, frozen=True):
    """Lookups, the names of resources, and the documents related to policies."""

    lookups: Lookups
    resource_names: ResourceNames
    exceptions: tuple[CelException, ...] = ()
    # Parameter objects given explicitly; None: they are read from the cluster.
    params: tuple[JsonObject, ...] | None = None
    watch_rule: WatchRule = watch_nothing
    image_outcomes: OutcomeCache = msgspec.field(default_factory=OutcomeCache)
    http_limits: HttpLimits = HttpLimits()
    # Checks are compiled on first use.
    is_lazy: bool = False
    # The release whose CEL admission policies use; None: the newest.
    kubernetes_version: tuple[int, int] | None = None

    def native_environment(self, *, has_params: bool, has_patches: bool = False) -> Environment:
        """What the expressions of Kubernetes' admission policies may use."""
        version = self.kubernetes_version or LATEST
        return kubernetes_environment(
            has_params=has_params, has_patches=has_patches, version=version, binary=version
        )

    @property
    def viewpoint(self) -> RequestViews:
        """How requests are presented to the expressions of Kyverno's kinds."""
        return RequestViews(self.lookups, self._name_resource)

    @property
    def native_viewpoint(self) -> RequestViews:
        """The same for Kubernetes' kinds and for classic rules, which use the same variables."""
        return RequestViews(self.lookups, self._name_resource, shows_bare_namespaces=True)

    def host_functions(self, namespace: str = "") -> HostFunctions:
        """External functions for the expressions of a policy."""
        return bind_host_functions(self.lookups, self.resource_names, namespace, self.http_limits)

    def _name_resource(self, kind: GroupVersionKind) -> str:
        return self.resource_names.of_kind(kind.group, kind.version, kind.kind).resource
