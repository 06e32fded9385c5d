"""Policies ask while a request is admitted; they create nothing, unless an administrator says so."""

import json
import time

import pytest
from background_site import until
from control_plane.install import install_lictor

GROUP = "policies.kyverno.io/v1beta1"
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "posts:admission",
        "labels": {"rbac.kyverno.io/aggregate-to-admission-controller": "true"},
    },
    "rules": [
        {"apiGroups": [""], "resources": ["configmaps", "limitranges"], "verbs": ["create", "get"]}
    ],
}
RULES = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
    ]
}


class Site:
    """A cluster with lictor in it."""

    def __init__(self, plane, lictor):
        self.plane = plane
        self.lictor = lictor

    def create(self, body, *words):
        """Whether it was let in, and what was said."""
        text = json.dumps(body)
        done = self.plane.kubectl("create", "-f", "-", *words, stdin=text, check=False)
        # Long messages are broken into lines.
        return done.returncode == 0, " ".join((done.stdout + done.stderr).split())

    def install(self, policy):
        done, said = self.create(policy)
        assert done, said
        kind, name = policy["kind"], policy["metadata"]["name"]
        where = policy["metadata"].get("namespace", "")
        words = ("get", kind, name, "-o", "json", *(("-n", where) if where else ()))

        def is_ready():
            status = json.loads(self.plane.kubectl(*words).stdout).get("status") or {}
            status = status.get("conditionStatus") or status
            return any(
                each["type"] in ("Ready", "WebhookConfigured") and each["status"] == "True"
                for each in status.get("conditions") or ()
            )

        until(is_ready, name)
        time.sleep(1.0)

    def remove(self, *policies):
        for policy in policies:
            where = policy["metadata"].get("namespace", "")
            place = ("-n", where) if where else ()
            self.plane.kubectl("delete", policy["kind"], policy["metadata"]["name"], *place)

    def count(self, kind, start, namespace="red"):
        words = ("get", kind, "-n", namespace, "-o", "name")
        return sum(f"/{start}" in line for line in self.plane.kubectl(*words).stdout.split())


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        made = Site(plane, install_lictor(plane))
        for name in ("red", "blue"):
            made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        made.create(RIGHTS)
        user = "system:serviceaccount:lictor:lictor-admission-controller"
        words = ("auth", "can-i", "create", "limitranges", "-n", "red", "--as", user)
        until(lambda: "yes" in plane.kubectl(*words, check=False).stdout, "rights")
        yield made


def make_map(name, namespace="red", **data):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def make_cel(name, expression, kind="NamespacedValidatingPolicy"):
    where = {"namespace": "red"} if kind.startswith("Namespaced") else {}
    spec = {
        "validationActions": ["Deny"],
        "matchConstraints": RULES,
        "validations": [{"expression": expression, "message": "not so"}],
    }
    metadata = {"name": name, **where}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec}


LOOP = make_cel(
    "loop",
    'resource.Post("v1", "configmaps", {"metadata": dyn({"generateName": "loop-"})})'
    '.metadata.name != ""',
)
CALL = {
    "apiVersion": "kyverno.io/v1",
    "kind": "Policy",
    "metadata": {"name": "call", "namespace": "red"},
    "spec": {
        "background": False,
        "rules": [
            {
                "name": "call",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "context": [
                    {
                        "name": "made",
                        "apiCall": {
                            "urlPath": "/api/v1/namespaces/red/limitranges",
                            "method": "POST",
                            "data": [
                                {"key": "metadata", "value": {"generateName": "called-"}},
                                {"key": "spec", "value": {"limits": []}},
                            ],
                        },
                    }
                ],
                "validate": {
                    "failureAction": "Enforce",
                    "message": "never",
                    "deny": {
                        "conditions": {
                            "any": [
                                {
                                    "key": "{{ made.metadata.name }}",
                                    "operator": "Equals",
                                    "value": "never",
                                }
                            ]
                        }
                    },
                },
            }
        ],
    },
}


@pytest.mark.parametrize("policy", [LOOP, CALL], ids=["cel", "classic"])
def test_a_policy_creates_nothing(site, policy):
    site.install(policy)
    for words in ((), ("--dry-run=server",)):
        began = time.monotonic()
        done, said = site.create(make_map("start"), *words)
        assert not done
        assert "POST is for access reviews" in said
        assert time.monotonic() - began < 20
    # Others are answered meanwhile.
    assert site.create(make_map("other", "blue"), "--dry-run=server")[0]
    assert site.count("configmaps", "loop-") == site.count("limitranges", "called-") == 0
    site.remove(policy)


def test_what_is_allowed_is_created_once_and_never_on_a_dry_run(site):
    site.lictor.restart(["--allowPostResources=configmaps,limitranges"])
    site.install(CALL)
    done, said = site.create(make_map("dry"), "--dry-run=server")
    assert not done
    assert "may not create limitranges on a dry run" in said
    assert site.count("limitranges", "called-") == 0
    done, said = site.create(make_map("wet"))
    assert done, said
    assert site.count("limitranges", "called-") == 1
    site.remove(CALL)
    # Our own request is known by the account it comes from: the policy is asked about it, as about
    # any other, and may not create anything again.
    site.install(LOOP)
    began = time.monotonic()
    done, said = site.create(make_map("start"))
    assert not done
    assert "in answer to a request of lictor itself" in said
    assert time.monotonic() - began < 20
    assert site.count("configmaps", "loop-") == 0
    site.remove(LOOP)


def test_our_own_requests_are_judged_too(site):
    """The mark ends a recursion; it frees nothing of any policy."""
    site.lictor.restart(["--allowPostResources=configmaps,limitranges"])
    strict = make_cel("strict", 'object.metadata.name != "bad"', "ValidatingPolicy")
    post = 'resource.Post("v1", "configmaps", "red", {"metadata": dyn({"name": "bad"})})'
    maker = make_cel(
        "maker", f'object.metadata.name != "start" || {post}.metadata.name == "bad"',
        "ValidatingPolicy",
    )  # fmt: skip
    site.install(strict)
    site.install(maker)
    done, said = site.create(make_map("start"))
    assert not done
    assert "not so" in said
    assert site.count("configmaps", "bad") == 0
    site.remove(strict, maker)
