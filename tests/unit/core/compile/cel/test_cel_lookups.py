"""What expressions ask of the outside, and who answers."""

import pytest

from lictor.core.errors import LookupFailedError, NotFoundError, NotProvidedError
from lictor.core.evaluate.cel.context import bind_host_functions
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.cel.host import AuthorizerCheck, HttpCall
from lictor.core.ports import ApiCall, HttpAnswer, HttpLimits, NoLookups


class Recording(NoLookups):
    """Knows two ConfigMaps, and answers every call with what was called."""

    def resource(self, api_version, kind, namespace, name):
        found = self.resources(api_version, kind, namespace)
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def resources(self, api_version, kind, namespace):
        if (api_version, kind, namespace) != ("v1", "ConfigMap", "here"):
            return []
        return [
            {"metadata": {"name": "a", "labels": {"x": "1"}}},
            {"metadata": {"name": "b"}},
        ]

    def call_api(self, call: ApiCall):
        if call.url_path.endswith("/widgets"):
            return {"items": [{"metadata": {"name": "w"}}]}
        return {"called": f"{call.method} {call.url_path or call.service_url}"}

    def global_reference(self, name):
        return name


WORLD = bind_host_functions(Recording(), builtin_names())


def test_get_a_known_kind():
    assert WORLD.get_resource("v1", "configmaps", "here", "b") == {"metadata": {"name": "b"}}


def test_what_is_not_there_is_an_error():
    with pytest.raises(LookupFailedError, match='configmaps "c" not found'):
        WORLD.get_resource("v1", "configmaps", "here", "c")


def test_get_an_unknown_kind_by_its_path():
    found = WORLD.get_resource("ex.io/v1", "widgets", "here", "w")
    assert found == {"called": "GET /apis/ex.io/v1/namespaces/here/widgets/w"}


@pytest.mark.parametrize(
    ("api_version", "resource", "labels", "names"),
    [
        ("v1", "configmaps", {}, ["a", "b"]),
        ("v1", "configmaps", {"x": "1"}, ["a"]),
        ("v1", "configmaps", {"x": "2"}, []),
        ("ex.io/v1", "widgets", {}, ["w"]),
    ],
)
def test_list(api_version, resource, labels, names):
    found = WORLD.list_resources(api_version, resource, "here", labels)
    assert [item["metadata"]["name"] for item in found["items"]] == names


def test_post():
    answer = WORLD.post_resource("v1", "pods", "", {})
    assert answer == {"called": "POST /api/v1/pods"}


def test_find():
    assert WORLD.find_resource("apps/v1", "Deployment") == ("apps", "v1", "deployments")


@pytest.mark.parametrize(("projection", "name"), [("", "entry"), ("first", "entry.first")])
def test_global_context(projection, name):
    assert WORLD.global_context("entry", projection) == name


def test_http():
    call = HttpCall("GET", "https://ex.io/x", {})
    assert WORLD.http(call) == (200, {"called": "GET https://ex.io/x"})


def test_a_namespaced_policy_makes_no_http_calls():
    world = bind_host_functions(NoLookups(), builtin_names(), "here")
    assert (world.namespace, world.allows_http) == ("here", False)


def test_without_a_cluster_nothing_is_known():
    world = bind_host_functions(NoLookups(), builtin_names())
    with pytest.raises(NotProvidedError):
        world.get_resource("v1", "configmaps", "here", "b")


@pytest.mark.parametrize(
    ("resource", "name", "path"),
    [
        ("widgets/status", "w", "/apis/ex.io/v1/namespaces/here/widgets/w/status"),
        ("widgets/../../../there/secrets", "w", ""),
        ("widgets", "../../secrets/s", ""),
        ("widgets", "..%2f..%2fsecrets%2fs", ""),
        ("widgets", "w?x=y#z", "/apis/ex.io/v1/namespaces/here/widgets/w%3Fx%3Dy%23z"),
        ("widgets", "..", ""),
        ("widgets?x", "w", "/apis/ex.io/v1/namespaces/here/widgets%3Fx/w"),
    ],
)  # fmt: skip
def test_a_name_never_leads_elsewhere(resource, name, path):
    if path:
        found = WORLD.get_resource("ex.io/v1", resource, "here", name)
        assert found == {"called": f"GET {path}"}
    else:
        with pytest.raises(LookupFailedError, match="is not a valid name"):
            WORLD.get_resource("ex.io/v1", resource, "here", name)


@pytest.mark.parametrize("resource", ["nodes", "namespaces"])
def test_what_lives_in_no_namespace_is_not_in_one(resource):
    with pytest.raises(LookupFailedError, match=f"there are no {resource} in namespace here"):
        WORLD.get_resource("v1", resource, "here", "a")
    with pytest.raises(LookupFailedError, match=f"there are no {resource} in namespace here"):
        WORLD.list_resources("v1", resource, "here", {})


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        (AuthorizerCheck("get", resource="pods", namespace="here", user="ann"), True),
        (AuthorizerCheck("get", resource="pods", namespace="here", service_account=("here", "x")), True),
        (AuthorizerCheck("get", resource="pods", namespace="there", user="ann"), False),
        (AuthorizerCheck("get", resource="nodes", user="ann"), False),
        (AuthorizerCheck("get", path="/metrics", user="ann"), False),
        (AuthorizerCheck("get", resource="pods", namespace="here", service_account=("there", "x")), False),
    ],
)  # fmt: skip
def test_a_namespaced_policy_learns_nothing_of_rights_elsewhere(question, is_asked):
    """What a policy of Kubewarden's could find out: CVE-2026-42541."""
    world = bind_host_functions(Recording(), builtin_names(), "here")
    if is_asked:
        assert not world.authorize(question).allowed
        return
    with pytest.raises(LookupFailedError, match="rights in that namespace"):
        world.authorize(question)
    assert not WORLD.authorize(question).allowed


class Answering(NoLookups):
    """A service that refuses, and no global context entries."""

    def __init__(self):
        self.calls = []

    def call_api(self, call: ApiCall):
        self.calls.append(call)
        return HttpAnswer(404, {"why": "gone"})

    def global_reference(self, name):
        raise NotFoundError("no such entry")


def test_the_status_of_an_answer():
    lookups = Answering()
    world = bind_host_functions(lookups, builtin_names())
    assert world.http(HttpCall("GET", "https://ex.io/x", {})) == (404, {"why": "gone"})
    assert lookups.calls[0].guarded


def test_an_absent_entry_is_null():
    assert bind_host_functions(Answering(), builtin_names()).global_context("entry", "") is None


def test_limits():
    world = bind_host_functions(NoLookups(), builtin_names(), "here")
    assert (world.allows_http, world.allowed_urls) == (False, ())
    assert "10.0.0.0/8" in world.blocked_urls
    limits = HttpLimits(blocked=("evil.example",), allowed=("https://a",), allows_namespaced=True)
    world = bind_host_functions(NoLookups(), builtin_names(), "here", limits)
    assert (world.allows_http, world.blocked_urls, world.allowed_urls) == (
        True, ("evil.example",), ("https://a",),
    )  # fmt: skip
