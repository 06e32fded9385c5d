"""What a cluster would answer, told by files."""

import msgspec
import pytest

from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups, guess_plural
from lictor.cli.inputs.requests import GivenValues
from lictor.cli.inputs.resources import LazyResources, find_in_texts
from lictor.cli.inputs.sources import SourceText
from lictor.core.errors import LookupFailedError, NotProvidedError
from lictor.core.ports import ApiCall


def thing(api_version: str, kind: str, namespace: str, name: str) -> dict:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


SETTINGS = {**thing("v1", "ConfigMap", "a", "settings"), "data": {"k": "v"}}
POD = thing("v1", "Pod", "a", "p")
OTHER_POD = thing("v1", "Pod", "b", "q")
POLICY = thing("networking.k8s.io/v1", "NetworkPolicy", "a", "deny")
IMAGE = {"image": "nginx", "configData": {}}
lookups = OfflineLookups(
    GivenValues(),
    GivenObjects((POD,), (SETTINGS, POD, OTHER_POD, POLICY), {"nginx": IMAGE}),
)
nothing = OfflineLookups(GivenValues())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ["p", "q"]),
        ("/api/v1/namespaces/b/pods", ["q"]),
        ("/api/v1/namespaces/c/pods", []),
        ("/apis/networking.k8s.io/v1/namespaces/a/networkpolicies", ["deny"]),
    ],
)
def test_lists(path: str, expected: list[str]) -> None:
    answer = lookups.call_api(ApiCall(path))
    assert [item["metadata"]["name"] for item in answer["items"]] == expected


def test_one_object() -> None:
    assert lookups.call_api(ApiCall("/api/v1/namespaces/b/pods/q?x=y")) == OTHER_POD
    assert lookups.config_map("a", "settings") == SETTINGS
    assert lookups.image_data("nginx") == IMAGE


@pytest.mark.parametrize(
    "call",
    [
        ApiCall("/api/v1/namespaces/b/pods/none"),
        ApiCall("/apis/nothing/v1/things"),
        ApiCall("nonsense"),
        ApiCall("/api/v1/"),
        ApiCall(service_url="https://example.com"),
        ApiCall("/api/v1/pods", method="POST"),
    ],
)
def test_what_is_not_there(call: ApiCall) -> None:
    with pytest.raises(LookupFailedError):
        lookups.call_api(call)


def test_without_a_cluster_nothing_is_known() -> None:
    for ask in (
        lambda: nothing.config_map("a", "b"),
        lambda: nothing.call_api(ApiCall("/api/v1/pods")),
        lambda: nothing.global_reference("x"),
        lambda: nothing.image_data("nginx"),
        lambda: nothing.resource("v1", "Pod", "a", "p"),
    ):
        with pytest.raises(NotProvidedError):
            ask()
    assert OfflineLookups(GivenValues(), GivenObjects(())).resources("v1", "Pod", "") == []


@pytest.mark.parametrize(
    ("api_version", "kind", "namespace", "count"),
    [
        ("v1", "Pod", "", 3),
        ("*/v1", "Pod", "a", 2),
        ("*", "Network*", "", 1),
        ("apps/v1", "Pod", "", 0),
    ],
)
def test_objects_by_kind(api_version: str, kind: str, namespace: str, count: int) -> None:
    assert len(lookups.resources(api_version, kind, namespace)) == count


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Pod", "pods"),
        ("Ingress", "ingresses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Gateway", "gateways"),
        ("Endpoints", "endpoints"),
    ],
)
def test_plurals(kind: str, plural: str) -> None:
    assert guess_plural(kind) == plural


def make_text(*objects: dict) -> SourceText:
    return SourceText(
        "f", b"".join(b"---\n" + msgspec.json.encode(each) + b"\n" for each in objects)
    )


def test_what_is_judged_answers_by_its_kind() -> None:
    own = thing("example.com/v1", "NetworkBoundary", "a", "mine")
    find = find_in_texts([make_text(SETTINGS, POD, OTHER_POD, POLICY, own)])
    judged = OfflineLookups(GivenValues(), GivenObjects(evaluated=LazyResources(find)))
    paths = {
        "/api/v1/pods": ["p", "q"],
        "/apis/networking.k8s.io/v1/networkpolicies": ["deny"],
        "/apis/example.com/v1/networkboundaries": ["mine"],
    }
    for path, names in paths.items():
        found = judged.call_api(ApiCall(path))["items"]
        assert [item["metadata"]["name"] for item in found] == names
    assert judged.config_map("a", "settings") == SETTINGS


def test_too_much_that_could_answer_is_an_error_and_nothing_else() -> None:
    pods = [thing("v1", "Pod", "a", f"pod-{number}") for number in range(20)]
    find = find_in_texts([make_text(SETTINGS, *pods)])
    judged = OfflineLookups(GivenValues(), GivenObjects(evaluated=LazyResources(find, limit=1000)))
    for _ in range(2):
        with pytest.raises(LookupFailedError, match=r"more than 1000 bytes .* --context-file"):
            judged.call_api(ApiCall("/api/v1/pods"))
    # Other kinds are still answered.
    assert judged.config_map("a", "settings") == SETTINGS
