"""What Kubewarden's policies may ask of their host, and what they are told."""

import contextlib
from datetime import UTC, datetime

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lictor.addons.kubewarden.family.capabilities import CAPABILITIES, read_capabilities
from lictor.addons.kubewarden.family.entries import ContextAwareResource, MemberEntry
from lictor.addons.kubewarden.family.host_calls import AnswerCache, LookupAnswers, PolicyHost
from lictor.addons.kubewarden.family.policy_server import read_server
from lictor.core.errors import CompileError, HostCallError, LookupFailedError, NotProvidedError
from lictor.core.ports import NoLookups, ResourceFacts
from lictor.core.raw import Json, JsonObject

NAMESPACE = ContextAwareResource("v1", "Namespace")
DEPLOYMENT = ContextAwareResource("apps/v1", "Deployment")
SHOP: JsonObject = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"team": "a"}, "managedFields": [{"manager": "x"}]},
}
WEB: JsonObject = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u-1",
        "resourceVersion": "7",
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "a"}, {"image": "b"}]}},
    },
}


class Cluster(NoLookups):
    """Two objects, and a note of every question."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.objects = (WEB,)

    def describe_kind(self, api_version, kind):
        if kind not in ("Namespace", "Deployment"):
            raise LookupFailedError(f"Cannot find resource {api_version}/{kind}")
        return ResourceFacts(f"{kind.lower()}s", kind == "Deployment")

    def resource(self, api_version, kind, namespace, name):
        self.asked.append((kind, namespace, name))
        known = {("Namespace", "", "shop"): SHOP, ("Deployment", "shop", "web"): WEB}
        return known.get((kind, namespace, name))

    def select_objects(self, query):
        self.asked.append(query)
        return self.objects

    def call_api(self, call):
        self.asked.append(call.data)
        allowed = call.data["spec"].get("user") == "alice"
        return {"status": {"allowed": allowed, "reason": None}}

    def resolve_host(self, host):
        if host != "localhost":
            raise LookupFailedError("Name or service not known")
        return ("127.0.0.1",)

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def make_host(lookups=None, *, grant: tuple[str, ...] = ("*",), **options) -> PolicyHost:
    resources = options.pop("resources", (NAMESPACE, DEPLOYMENT))
    entry = MemberEntry(
        module="file://a.wasm", host_capabilities=grant, context_aware_resources=resources
    )
    return PolicyHost(lookups or Cluster(), entry, policy="p", **options)


def ask(host: PolicyHost, capability: str, payload: Json) -> Json:
    namespace, _, operation = capability.partition("/")
    answer = host.call(namespace, operation, orjson.dumps(payload))
    return orjson.loads(answer) if answer else None


def get(kind="Namespace", name="shop", **more) -> JsonObject:
    version = "apps/v1" if kind == "Deployment" else "v1"
    return {"api_version": version, "kind": kind, "name": name, "disable_cache": False, **more}


# --- what is granted


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        ((), 0),
        (("*",), len(CAPABILITIES)),
        (("oci/*",), 5),
        (("oci/v1/*",), 4),
        (("oci/v2/verify",), 1),
        (("kubernetes/*", "net/v1/dns_lookup_host"), 5),
        (("net/*", "*"), len(CAPABILITIES)),
    ],
)
def test_patterns_grant(patterns, count):
    assert len(read_capabilities(patterns)) == count


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "nope/*",
        "oci",
        "oci/v1",
        "oci/v9/verify",
        "oci/*/verify",
        "oci/v1/verify/*",
        "oci/v1/verify/now",
        "*/v1",
        "**",
        "oci/",
        "tracing/log",
        "Oci/*",
    ],
)
def test_a_pattern_that_can_grant_nothing_is_refused(pattern):
    with pytest.raises(CompileError, match="invalid hostCapabilities pattern"):
        read_capabilities([pattern])


def test_a_policy_server_grants_no_misspelt_pattern():
    def read(*patterns):
        spec = {"image": "i", "replicas": 1, "namespacedPoliciesCapabilities": list(patterns)}
        return read_server({"metadata": {"name": "s", "uid": "u"}, "spec": spec})

    assert read("oci/*").spec.namespaced_policies_capabilities == ("oci/*",)
    with pytest.raises(msgspec.ValidationError, match='unknown segment "ocl"'):
        read("oci/*", "ocl/*")


def test_every_capability_is_refused_where_none_is_granted(cluster):
    host = make_host(cluster, grant=())
    for capability in CAPABILITIES:
        with pytest.raises(HostCallError, match=f"'{capability}' host capability"):
            ask(host, capability, {})
    assert cluster.asked == []


def test_every_capability_is_refused_where_another_is_granted(cluster):
    for granted in CAPABILITIES:
        host = make_host(cluster, grant=(granted,))
        for capability in CAPABILITIES - {granted}:
            with pytest.raises(HostCallError, match="has not been granted"):
                ask(host, capability, {})
    assert cluster.asked == []


def test_unknown_calls_are_refused():
    host = make_host()
    for capability, reason in (
        ("zzz/v1/x", "unknown namespace: zzz"),
        ("kubernetes/zzz", "unknown operation: zzz"),
        ("tracing/trace", "unknown operation: trace"),
    ):
        with pytest.raises(HostCallError, match=reason):
            ask(host, capability, {})


@pytest.mark.parametrize(
    ("capability", "payload"),
    [
        ("kubernetes/get_resource", {"kind": 1}),
        ("kubernetes/get_resource", {"api_version": "v1", "kind": "Namespace", "name": "shop"}),
        ("kubernetes/list_resources_by_namespace", {"api_version": "v1", "kind": "Namespace"}),
        ("kubernetes/can_i", {"disable_cache": True}),
        ("net/v1/dns_lookup_host", {"host": "localhost"}),
        ("oci/v1/verify", {}),
        ("oci/v1/verify", {"SigstoreCertificateVerify": {}}),
        ("oci/v2/verify", {"type": "Zzz"}),
        ("oci/v2/verify", {"type": "SigstoreKeylessVerify", "image": "a", "keyless": [{}]}),
        ("crypto/v1/is_certificate_trusted", {"cert": {"encoding": "Pem", "data": [300]}}),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(capability, payload):
    with pytest.raises(HostCallError):
        ask(make_host(), capability, payload)


def test_a_huge_request_is_refused():
    with pytest.raises(HostCallError, match="bytes"):
        ask(make_host(), "net/v1/dns_lookup_host", "x" * 5_000_000)


# --- objects


def test_an_object_comes_with_its_managed_fields(cluster):
    assert ask(make_host(cluster), "kubernetes/get_resource", get()) == SHOP


def test_an_object_is_kept_for_a_moment_unless_the_policy_wants_it_fresh(cluster):
    now = [0.0]
    cache = AnswerCache(clock=lambda: now[0])
    host = make_host(cluster, answers=LookupAnswers(cluster, cache=cache))
    for _ in range(3):
        ask(host, "kubernetes/get_resource", get())
    assert len(cluster.asked) == 1
    ask(host, "kubernetes/get_resource", get(disable_cache=True))
    assert len(cluster.asked) == 2
    now[0] = 5.1
    ask(host, "kubernetes/get_resource", get())
    assert len(cluster.asked) == 3


def test_masks_keep_who_an_object_is(cluster):
    masks = ["metadata.name", "spec.template.spec.containers.image"]
    asked = get("Deployment", "web", namespace="shop", field_masks=masks)
    assert ask(make_host(cluster), "kubernetes/get_resource", asked) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"template": {"spec": {"containers": [{"image": "a"}, {"image": "b"}]}}},
    }


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (get(name="none"), "Cannot find v1/Namespace named 'none'"),
        (get(name=""), "no name"),
        (get("Deployment", "web"), "no namespace was provided"),
        (get("Secret", "s", namespace="shop"), "not been granted access to Kubernetes v1/Secret"),
        (get(field_masks=["a..b"]), "no field mask"),
        (get(field_masks=["a"] * 101), "more than 100"),
    ],
)
def test_objects_that_a_policy_does_not_get(payload, reason):
    with pytest.raises(HostCallError, match=reason):
        ask(make_host(), "kubernetes/get_resource", payload)


def test_a_namespace_beside_a_kind_of_the_whole_cluster_plays_no_part(cluster):
    assert ask(make_host(cluster), "kubernetes/get_resource", get(namespace="x")) == SHOP


def test_a_list_has_the_form_that_policies_know(cluster):
    asked = {"api_version": "apps/v1", "kind": "Deployment", "label_selector": "app=web"}
    told = ask(make_host(cluster), "kubernetes/list_resources_all", asked)
    assert (told["apiVersion"], told["kind"]) == ("apps/v1", "DeploymentList")
    assert told["metadata"] == {}
    (item,) = told["items"]
    assert item["metadata"]["annotations"] == {}
    assert item["metadata"]["managedFields"] == []
    assert item["spec"] == WEB["spec"]
    assert cluster.asked[0].label_selector == "app=web"


def test_a_list_is_written_again_when_its_objects_change(cluster):
    host = make_host(cluster)
    payload = orjson.dumps({"api_version": "apps/v1", "kind": "Deployment"})
    first = host.call("kubernetes", "list_resources_all", payload)
    assert host.call("kubernetes", "list_resources_all", payload) is first
    cluster.objects = ()
    assert orjson.loads(host.call("kubernetes", "list_resources_all", payload))["items"] == []


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"api_version": "v1", "kind": "Namespace", "namespace": "shop"}, "cluster wide"),
        ({"api_version": "apps/v1", "kind": "Deployment", "namespace": ""}, "no namespace"),
        ({"api_version": "v1", "kind": "Secret", "namespace": "shop"}, "not been granted"),
    ],
)
def test_lists_that_a_policy_does_not_get(payload, reason, cluster):
    with pytest.raises(HostCallError, match=reason):
        ask(make_host(cluster), "kubernetes/list_resources_by_namespace", payload)
    assert cluster.asked == []


def test_a_policy_of_a_namespace_reads_no_objects(cluster):
    host = make_host(cluster, namespace="shop")
    for capability, payload in (
        ("kubernetes/get_resource", get("Deployment", "web", namespace="shop")),
        ("kubernetes/list_resources_all", {"api_version": "apps/v1", "kind": "Deployment"}),
    ):
        with pytest.raises(HostCallError, match="has not been granted access to Kubernetes"):
            ask(host, capability, payload)
    with pytest.raises(HostCallError, match="has not been granted access to Kubernetes"):
        host.context()
    assert cluster.asked == []


@pytest.mark.parametrize(("user", "allowed"), [("alice", True), ("bob", False)])
def test_access_is_reviewed(cluster, user, allowed):
    review = {
        "user": user,
        "groups": ["g"],
        "resource_attributes": {"verb": "get", "resource": "pods", "namespace": "shop"},
    }
    asked = {"subject_access_review": review, "disable_cache": False}
    host = make_host(cluster, resources=())
    assert ask(host, "kubernetes/can_i", asked) == {"allowed": allowed}
    ask(host, "kubernetes/can_i", asked)
    (sent,) = cluster.asked
    assert sent["spec"] == {
        "user": user,
        "groups": ["g"],
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shop"},
    }


@pytest.mark.parametrize("asked", [None, "", "other"])
def test_a_policy_of_a_namespace_asks_about_access_there(cluster, asked):
    host = make_host(cluster, namespace="shop")
    review = {"user": "alice", "resource_attributes": {"verb": "get", "namespace": "shop"}}
    payload = {"subject_access_review": review, "disable_cache": True}
    assert ask(host, "kubernetes/can_i", payload) == {"allowed": True}
    review["resource_attributes"] = {"verb": "get", "namespace": asked}
    with pytest.raises(HostCallError, match="may not read rights"):
        ask(host, "kubernetes/can_i", payload)


def test_a_review_without_a_verdict_is_no_answer(cluster):
    cluster.call_api = lambda _: {"status": {}}
    asked = {"subject_access_review": {"user": "a"}, "disable_cache": True}
    with pytest.raises(HostCallError, match="without a status"):
        ask(make_host(cluster), "kubernetes/can_i", asked)


# --- data of policies in Rego


def test_rego_policies_find_their_resources_in_the_order_of_their_names(cluster):
    host = make_host(cluster)
    first, second = host.context()
    assert (first.api_version, first.kind, first.plural) == ("apps/v1", "Deployment", "deployments")
    assert (second.kind, second.plural) == ("Namespace", "namespaces")
    assert first.objects[0]["spec"] == WEB["spec"]
    assert host.context() is host.context()


def test_rego_policies_need_the_capability_to_list():
    with pytest.raises(HostCallError, match="list_resources_all"):
        make_host(grant=("kubernetes/get_resource", "oci/*")).context()
    assert make_host(grant=(), resources=()).context() == ()


def test_an_unknown_kind_is_no_empty_list():
    host = make_host(resources=(ContextAwareResource("v1", "Zzz"),))
    with pytest.raises(HostCallError, match="Cannot find resource v1/Zzz"):
        host.context()


# --- names, logs, caches


def test_hosts_are_looked_up():
    assert ask(make_host(), "net/v1/dns_lookup_host", "localhost") == {"ips": ["127.0.0.1"]}
    with pytest.raises(HostCallError, match="not known"):
        ask(make_host(), "net/v1/dns_lookup_host", "no.such.invalid")


def test_what_nobody_answers_is_an_error():
    host = make_host(NoLookups())
    for capability, payload in (
        ("kubernetes/get_resource", get()),
        ("net/v1/dns_lookup_host", "localhost"),
        ("oci/v1/manifest_digest", "nginx"),
    ):
        with pytest.raises(HostCallError, match="Callback evaluation failure"):
            ask(host, capability, payload)
    with pytest.raises(NotProvidedError):
        NoLookups().describe_kind("v1", "Pod")


def test_log_lines_need_no_grant_and_have_bounds():
    lines, now = [], [0.0]
    host = make_host(grant=(), tell=lines.append, clock=lambda: now[0])
    payload = {"level": "WARN", "message": "a\nb\x1b[31m", "data": {"k": 1}, "user": "u" * 999}
    assert ask(host, "tracing/log", payload) is None
    (line,) = lines
    assert (line.policy, line.level, line.message) == ("p", "warning", "a\\x0ab\\x1b[31m")
    assert line.data["data"] == '{"k":1}'
    assert len(line.data["user"]) < 300
    for _ in range(1000):
        ask(host, "tracing/log", {"level": "info", "message": "x" * 10_000})
    assert len(lines) == 100
    assert max(len(each.message) for each in lines) <= 4097
    now[0] = 1.0
    ask(host, "tracing/log", {"level": "info", "message": "again"})
    assert "901 log lines" in lines[-2].message


def test_a_log_line_that_cannot_be_read_is_told_without_its_content():
    lines = []
    host = make_host(tell=lines.append)
    host.call("tracing", "log", b'{"level": 1, "message": "secret"}')
    host.call("tracing", "log", b"x" * 100_000)
    assert [each.level for each in lines] == ["error", "error"]
    assert "secret" not in repr(lines)


def test_violations_are_told():
    lines = []
    host = make_host(grant=(), tell=lines.append)
    with pytest.raises(HostCallError):
        ask(host, "net/v1/dns_lookup_host", "localhost")
    assert "net/v1/dns_lookup_host" in lines[0].message


def test_the_cache_has_bounds():
    cache = AnswerCache(most=10, largest=100)
    for number in range(50):
        cache.keep(bytes([number]), b"x", 60.0)
    assert sum(cache.find(bytes([number])) is not None for number in range(50)) == 10
    cache.keep(b"large", b"x" * 101, 60.0)
    assert cache.find(b"large") is None


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 300) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    capability=st.sampled_from(sorted((*CAPABILITIES, "tracing/log", "odd/call"))),
    payload=_ODD.map(orjson.dumps) | st.binary(max_size=50),
    changes=st.dictionaries(
        st.sampled_from(["kind", "name", "field_masks", "image", "cert"]), _ODD
    ),
)
def test_whatever_is_asked_is_answered_or_refused(capability, payload, changes):
    host = make_host()
    namespace, _, operation = capability.partition("/")
    whole = orjson.dumps({**get("Deployment", "web", namespace="shop"), **changes})
    for each in (payload, whole):
        with contextlib.suppress(HostCallError):
            assert isinstance(host.call(namespace, operation, each), bytes)
