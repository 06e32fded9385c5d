"""The files that only the command line reads: Test, Values, UserInfo, Context, ClusterResource.

All are cli.kyverno.io/v1alpha1. Older files have no apiVersion and kind; `load` reports it.
"""

from typing import Final, Literal

import msgspec

from lictor.core.model.metadata import Metadata, Strings
from lictor.core.raw import Json, JsonObject


class ApiResource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource as the API server's discovery describes it."""

    name: str = ""
    singular_name: str = ""
    namespaced: bool = False
    group: str = ""
    version: str = ""
    kind: str = ""
    verbs: Strings = ()
    short_names: Strings = ()
    categories: Strings = ()
    storage_version_hash: str = ""


class Subresource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A subresource and the resource it belongs to."""

    subresource: ApiResource
    parent_resource: ApiResource


class NamespaceLabels(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The labels of a namespace."""

    name: str
    labels: dict[str, str] = {}


class ResourceValues(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Variables for one resource."""

    name: str
    values: JsonObject = {}


class RuleValues(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Context entries of one rule; of a foreach, one value per pass."""

    name: str
    values: JsonObject = {}
    foreach_values: dict[str, tuple[Json, ...]] = {}


class PolicyValues(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Variables for one policy."""

    name: str
    resources: tuple[ResourceValues, ...] = ()
    rules: tuple[RuleValues, ...] = ()


class ValuesSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a cluster would know, given by hand."""

    global_values: JsonObject = {}
    policies: tuple[PolicyValues, ...] = ()
    namespace_selector: tuple[NamespaceLabels, ...] = ()
    # Whole Namespace objects.
    namespaces: tuple[JsonObject, ...] = ()
    subresources: tuple[Subresource, ...] = ()


class Values(ValuesSpec, frozen=True, rename="camel", omit_defaults=True):
    """A values file."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()

    @property
    def outdated(self) -> bool:
        """An older schema, which Kyverno refuses."""
        return not self.api_version or not self.kind


class User(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A user as the API server authenticated them."""

    username: str = ""
    uid: str = ""
    groups: Strings = ()
    extra: dict[str, tuple[str, ...]] = {}


class UserInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The caller: the user and the roles bound to them."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    roles: Strings = ()
    cluster_roles: Strings = ()
    user_info: User = User()
    # Kyverno's word for "this is a dry run".
    synchronize: bool = False

    @property
    def outdated(self) -> bool:
        """An older schema, which Kyverno refuses."""
        return not self.api_version or not self.kind


class ImageData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The data of an image, as a registry returns them."""

    image: str = ""
    resolved_image: str = ""
    registry: str = ""
    repository: str = ""
    tag: str = ""
    digest: str = ""
    image_index: Json = None
    manifest: Json = None
    config: Json = None


class ContextSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects of the cluster and images of the registry."""

    resources: tuple[JsonObject, ...] = ()
    images: tuple[ImageData, ...] = ()


class Context(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the libraries of CEL policies find outside."""

    spec: ContextSpec
    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()


class ClusterResourceSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects of the cluster, and files of their definitions."""

    crds: Strings = ()
    resources: tuple[JsonObject, ...] = ()


class ClusterResource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a cluster would hold."""

    spec: ClusterResourceSpec
    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()


class TestResourceSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource, named in full."""

    # pytest must not take this for a test.
    __test__ = False

    group: str = ""
    version: str = ""
    kind: str = ""
    namespace: str = ""
    subresource: str = ""
    name: str = ""


class TestResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The expected result of one rule for some resources."""

    __test__ = False

    policy: str = ""
    rule: str = ""
    result: str = ""
    kind: str = ""
    resources: Strings = ()
    resource_specs: tuple[TestResourceSpec, ...] = ()
    is_validating_admission_policy: bool = False
    is_mutating_admission_policy: bool = False
    is_validating_policy: bool = False
    is_deleting_policy: bool = False
    is_image_validating_policy: bool = False
    is_generating_policy: bool = False
    is_mutating_policy: bool = False
    patched_resources: str = ""
    generated_resource: str = ""
    # Files; each generated object must be in one of them. They replace `generatedResource`.
    generated_resources: Strings = ()
    clone_source_resource: str = ""
    fail_on_missing_resources: bool = False
    # The operation of the request; empty: that of the values, or CREATE.
    operation: Literal["", "CREATE", "UPDATE", "DELETE"] = ""

    @property
    def generated_files(self) -> Strings:
        """The files with the objects that a rule generates."""
        single = (self.generated_resource,) if self.generated_resource else ()
        return self.generated_resources or single


class CheckMatch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which answers a check is about: assertion trees."""

    resource: Json = None
    policy: Json = None
    rule: Json = None


class Check(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What answers must (`assert`) or must not (`error`) look like: assertion trees."""

    match: CheckMatch = CheckMatch()
    assert_: Json = msgspec.field(default=None, name="assert")
    error: Json = None


class MockedResponse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer of a service that is not called."""

    body: Json
    status_code: int = 200


class ApiCallResponse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to calls of one URL, or of one path of the API server."""

    response: MockedResponse
    url: str = ""
    url_path: str = ""
    method: Literal["", "GET", "POST"] = ""


class MockedProjection(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a global context entry, by a JMESPath expression."""

    name: str
    path: str


class MockedContextEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The data of a GlobalContextEntry."""

    name: str
    data: Json = None
    resources: tuple[JsonObject, ...] = ()
    resource_files: Strings = ()
    field_path: str = ""
    projections: tuple[MockedProjection, ...] = ()


class Test(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Policies, resources, and the expected results."""

    __test__ = False

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    # The older place of the name.
    name: str = ""
    policies: Strings = ()
    resources: Strings = ()
    # The older form of `jsonPayloads`, for one file.
    json_payload: str = ""
    json_payloads: Strings = ()
    http_payloads: Strings = ()
    envoy_payloads: Strings = ()
    target_resources: Strings = ()
    variables: str = ""
    param_resources: Strings = ()
    userinfo: str = ""
    values: ValuesSpec | None = None
    exceptions: Strings = ()
    context: str = ""
    cluster_resources: Strings = ()
    api_call_responses: tuple[ApiCallResponse, ...] = ()
    global_context_entries: tuple[MockedContextEntry, ...] = ()
    results: tuple[TestResult, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def outdated(self) -> bool:
        """An older schema, which Kyverno refuses."""
        return not self.api_version or not self.kind or bool(self.name)


# By kind; all of group cli.kyverno.io.
FILE_RECORDS: Final[dict[str, type[msgspec.Struct]]] = {
    "Test": Test,
    "Values": Values,
    "UserInfo": UserInfo,
    "Context": Context,
    "ClusterResource": ClusterResource,
}
