"""Is each path answered with exactly the verbs that discovery lists for it?"""

import httpx2
import yaml
from embedded_site import CONFIG_MAPS, TOKEN, Site, run_on_site
from resource_verbs import explain, list_calls
from test_api_writes import PODS, pod

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.core.facts.facts import load_served_kinds

CRD = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.a, statusReplicasPath: .status.a}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
""")


def connect(site: Site) -> httpx2.AsyncClient:
    """A client that knows HEAD."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx2.AsyncClient(base_url=site.server.url, headers=headers, trust_env=False)


async def list_versions(site: Site) -> list[str]:
    groups = (await site.get("/apis")).json["groups"]
    return ["/api/v1", *(f"/apis/{v['groupVersion']}" for g in groups for v in g["versions"])]


def test_every_verb_of_every_path() -> None:
    async def work(site: Site) -> None:
        await site.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        await site.until("/apis/example.com/v2", lambda answer: answer.status == 200)
        calls = []
        for version in await list_versions(site):
            resources = (await site.get(version)).json["resources"]
            calls += list_calls(version, resources, "default")
        wrong = []
        async with connect(site) as client:
            for call in calls:
                if call.method == "HEAD":
                    head = await client.head(call.path)
                    wrong.append(explain(call, head.status_code, head.text))
                else:
                    answer = await site.ask(call.method, call.path, call.body, call.content_type)
                    wrong.append(explain(call, answer.status, answer.text))
        assert [each for each in wrong if each] == []
        assert len(calls) > 2000

    run_on_site(work)


def test_verbs_are_those_of_the_facts() -> None:
    """scripts/make_facts.py takes them from the discovery documents of Kubernetes' own release."""
    facts = load_served_kinds()
    for kind in build_catalogue():
        known = facts[kind.api_version][kind.kind]
        assert (kind.verbs, kind.subresources) == (known.verbs, known.subresources)


def test_a_status_creates_and_deletes_nothing() -> None:
    async def work(site: Site) -> None:
        for method in ("POST", "DELETE"):
            assert (await site.ask(method, f"{PODS}/p/status", pod("p"))).status == 405
        assert (await site.get(f"{PODS}/p")).status == 404
        await site.create(PODS, pod("p"))
        for part in ("status", "ephemeralcontainers", "resize", "log", "binding", "eviction"):
            assert (await site.delete(f"{PODS}/p/{part}")).status == 405
        # A read, whatever else is asked for.
        watched = await site.get(f"{PODS}/p/status?watch=1")
        assert (watched.status, watched.json["kind"]) == (200, "Pod")

    run_on_site(work)


def test_a_head_is_not_answered_with_a_watch() -> None:
    async def work(site: Site) -> None:
        async with connect(site) as client:
            answer = await client.head(f"{CONFIG_MAPS}?watch=1")
            assert (answer.status_code, answer.text) == (405, "")
            # The next answer on the same connection is one to the next request.
            assert (await client.get(CONFIG_MAPS)).json()["kind"] == "ConfigMapList"

    run_on_site(work)
