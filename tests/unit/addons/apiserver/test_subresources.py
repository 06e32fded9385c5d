"""Subresources that are more than a part of their object, and objects with something of their own."""

from embedded_site import Site, run_on_site
from test_api_writes import PODS, pod

from lictor.core.raw import JsonObject

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]},
        },
    }


def test_scales() -> None:
    async def work(site: Site) -> None:
        created = await site.create(DEPLOYMENTS, deployment("d"))
        path = f"{DEPLOYMENTS}/d/scale"
        scale = (await site.get(path)).json
        assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == (
            "Scale",
            2,
            "a=b",
        )
        patched = await site.patch(path, {"spec": {"replicas": 5}})
        assert patched.json["spec"]["replicas"] == 5
        after = (await site.get(f"{DEPLOYMENTS}/d")).json
        assert (after["spec"]["replicas"], after["metadata"]["generation"]) == (5, 2)
        # The version that was read is an old one by now.
        scale["spec"]["replicas"] = 1
        assert (await site.ask("PUT", path, scale)).status == 409
        assert scale["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
        del scale["metadata"]["resourceVersion"]
        assert (await site.ask("PUT", f"{path}?dryRun=All", scale)).json["spec"]["replicas"] == 1
        assert (await site.get(path)).json["spec"]["replicas"] == 5
        negative = await site.patch(path, {"spec": {"replicas": -1}})
        assert (negative.status, negative.json["reason"]) == (422, "Invalid")
        for body in ([], {"metadata": 3}, {"spec": {"replicas": "x"}}):
            assert (await site.ask("PUT", path, body)).status == 400
        assert (await site.get(f"{PODS}/none/scale")).status == 404

    run_on_site(work)


def test_evictions_and_bindings() -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        bind = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p"},
            "target": {"name": "n1"},
        }
        assert (await site.ask("POST", f"{PODS}/p/binding", bind)).json["status"] == "Success"
        again = await site.ask("POST", f"{PODS}/p/binding", bind)
        assert (again.status, again.message) == (
            409,
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"',
        )
        assert (await site.get(f"{PODS}/p")).json["spec"]["nodeName"] == "n1"
        evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        other = {**evict, "metadata": {"name": "q"}}
        assert (await site.ask("POST", f"{PODS}/p/eviction", other)).status == 400
        dry = {**evict, "deleteOptions": {"dryRun": ["All"]}}
        assert (await site.ask("POST", f"{PODS}/p/eviction", dry)).status == 201
        assert (await site.get(f"{PODS}/p")).status == 200
        assert (await site.ask("POST", f"{PODS}/p/eviction", evict)).status == 201
        assert (await site.get(f"{PODS}/p")).status == 404
        assert (await site.ask("POST", f"{PODS}/p/eviction", evict)).status == 404

    run_on_site(work)


def test_nothing_runs_here() -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        assert (
            (await site.get(f"{PODS}/p/log")).status,
            (await site.get(f"{PODS}/q/log")).status,
        ) == (200, 404)
        refused = await site.ask("POST", f"{PODS}/p/exec?command=ls&container=c", b"")
        assert (refused.status, refused.message) == (400, "pod p does not have a host assigned")
        proxy = "/api/v1/namespaces/default/services/kubernetes/proxy"
        assert (await site.get(proxy)).status == 503

    run_on_site(work)


def test_tokens_open_the_door() -> None:
    async def work(site: Site) -> None:
        await site.until(ACCOUNT, lambda answer: answer.status == 200)
        issued = await site.create(f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 600}})
        bearer = f"Bearer {issued['status']['token']}"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        who = await site.ask("POST", path, review, authorization=bearer)
        assert who.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
        refused = await site.get("/api/v1/secrets", authorization=bearer)
        assert refused.status == 403
        assert (
            'cannot list resource "secrets" in API group "" at the cluster scope' in refused.message
        )
        assert (await site.get("/api/v1/secrets", authorization="Bearer wrong")).status == 401
        space = await site.get("/api/v1/namespaces/default", authorization=bearer)
        assert (
            'cannot get resource "namespaces" in API group "" in the namespace "default"'
            in space.message
        )
        as_bob = await site.get("/api/v1/secrets", impersonate_user="bob", impersonate_extra_a="b")
        assert 'User "bob" cannot list' in as_bob.message

    run_on_site(work)


def test_parts_of_pods() -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}], "nodeName": "x"}}
        answer = await site.patch(
            f"{PODS}/p/ephemeralcontainers", added, "strategic-merge-patch+json"
        )
        assert [each["name"] for each in answer.json["spec"]["ephemeralContainers"]] == ["e"]
        assert "nodeName" not in answer.json["spec"]

    run_on_site(work)


def test_jobs_know_their_pods_by_their_uid() -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {**pod("p")["spec"], "restartPolicy": "Never"}}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": template, "suspend": True},
    }

    async def work(site: Site) -> None:
        job = await site.create(jobs, document)
        uid = job["metadata"]["uid"]
        assert job["spec"]["selector"] == {
            "matchLabels": {"batch.kubernetes.io/controller-uid": uid}
        }
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert (labels["controller-uid"], labels["job-name"]) == (uid, "j")
        assert job["metadata"]["labels"] == labels
        deleted = await site.delete(f"{jobs}/j")
        assert "child pods are preserved by default" in deleted.headers["warning"]

    run_on_site(work)
