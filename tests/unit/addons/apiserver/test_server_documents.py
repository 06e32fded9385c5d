"""Discovery, OpenAPI and the other documents about the server itself."""

import orjson
import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.kinds.discovery import Documents

CRD = yaml.safe_load("""
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: things, kind: Thing, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.n, statusReplicasPath: .status.n}}
    schema: {openAPIV3Schema: {type: object, description: A thing., properties: {spec: {type: object, properties: {n: {type: integer}}}}}}
""")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
REF = "#/components/schemas/"


@pytest.fixture
def catalogue():
    built = build_catalogue()
    built.define(CRD)
    return built


@pytest.fixture
def documents(catalogue):
    return Documents(catalogue, "127.0.0.1:6443")


def ask(documents, path, accept=""):
    found = documents.find(path, accept)
    return None if found is None else orjson.loads(found.body)


def test_core_versions(documents):
    assert ask(documents, "/api")["versions"] == ["v1"]


def test_groups(documents):
    groups = {group["name"]: group for group in ask(documents, "/apis")["groups"]}

    assert groups["autoscaling"]["preferredVersion"]["version"] == "v2"
    assert groups["example.com"]["versions"] == [
        {"groupVersion": "example.com/v1", "version": "v1"}
    ]
    assert ask(documents, "/apis/apps")["kind"] == "APIGroup"


def test_resources_of_a_version(documents):
    resources = {each["name"]: each for each in ask(documents, "/apis/apps/v1")["resources"]}

    assert resources["deployments"]["shortNames"] == ["deploy"]
    assert resources["deployments/status"]["verbs"] == ["get", "patch", "update"]
    assert resources["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    assert {each["name"] for each in ask(documents, "/apis/example.com/v1")["resources"]} == {
        "things",
        "things/status",
        "things/scale",
    }


def test_aggregated_discovery(documents):
    found = documents.find("/apis", AGGREGATED)
    groups = {each["metadata"]["name"]: each for each in orjson.loads(found.body)["items"]}

    assert b"as=APIGroupDiscoveryList" in found.content_type
    (version,) = groups["example.com"]["versions"]
    assert version["resources"][0]["scope"] == "Cluster"
    core = ask(documents, "/api", AGGREGATED)["items"]
    assert core[0]["versions"][0]["version"] == "v1"


def test_clients_that_know_only_the_older_form_get_it(documents):
    older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

    assert ask(documents, "/apis", f"{older},application/json")["kind"] == "APIGroupList"


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nope",
        "/apis/apps/v2",
        "/api/v2",
        "/openapi/v3/apis/nope/v1",
        "/nope",
        "/version/x",
        "/apis//v1",
    ],
)
def test_what_is_not_there(documents, path):
    assert documents.find(path) is None


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/"])
def test_health(documents, path):
    assert documents.find(path).body == b"ok"


def test_version(documents):
    version = ask(documents, "/version")

    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.")


def test_openapi_of_builtin_kinds(documents):
    document = ask(documents, "/openapi/v3/apis/apps/v1")
    schemas = document["components"]["schemas"]
    path = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]

    named = {"group": "apps", "kind": "Deployment", "version": "v1"}
    assert path["get"]["x-kubernetes-group-version-kind"] == named
    assert "application/strategic-merge-patch+json" in path["patch"]["requestBody"]["content"]
    assert {each["name"] for each in path["patch"]["parameters"]} >= {"fieldValidation", "dryRun"}
    spec = schemas["io.k8s.api.apps.v1.DeploymentSpec"]
    assert spec["required"] == ["selector", "template"]
    assert spec["properties"]["strategy"]["x-kubernetes-patch-strategy"] == "retainKeys"
    pod = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert pod["terminationGracePeriodSeconds"] == {"type": "integer", "format": "int64"}
    assert pod["dnsPolicy"]["enum"] == [
        "ClusterFirst",
        "ClusterFirstWithHostNet",
        "Default",
        "None",
    ]


def test_all_references_lead_somewhere(catalogue, documents):
    for group in catalogue.groups():
        for version in catalogue.versions(group):
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            document = ask(documents, f"/openapi/v3/{path}")
            schemas = document["components"]["schemas"]
            missing = set(list_references(document)) - {REF + name for name in schemas}
            assert missing == set(), path


def list_references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from list_references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from list_references(inner)


def test_openapi_of_custom_kinds(documents):
    document = ask(documents, "/openapi/v3/apis/example.com/v1")
    schema = document["components"]["schemas"]["com.example.v1.Thing"]
    content = document["paths"]["/apis/example.com/v1/things/{name}"]["patch"]["requestBody"]

    assert schema["description"] == "A thing."
    assert schema["properties"]["spec"]["properties"] == {"n": {"type": "integer"}}
    assert schema["properties"]["metadata"]["allOf"][0]["$ref"].endswith("meta.v1.ObjectMeta")
    # They know no strategic merges, and kubectl must know that.
    assert "application/strategic-merge-patch+json" not in content["content"]


def test_the_hash_of_a_document_changes_with_its_kinds(catalogue, documents):
    before = ask(documents, "/openapi/v3")["paths"]
    changed = yaml.safe_load(yaml.safe_dump(CRD))
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["more"] = {"type": "string"}
    catalogue.define(changed)

    after = ask(documents, "/openapi/v3")["paths"]

    assert before["apis/apps/v1"] == after["apis/apps/v1"]
    assert before["apis/example.com/v1"] != after["apis/example.com/v1"]


def test_documents_follow_the_kinds(catalogue, documents):
    assert ask(documents, "/apis/example.com/v1") is not None

    catalogue.forget("things.example.com")

    assert ask(documents, "/apis/example.com/v1") is None


def test_older_clients_get_an_empty_document(documents):
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

    found = documents.find("/openapi/v2", accept)

    assert found.content_type == b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert ask(documents, "/openapi/v2")["swagger"] == "2.0"
