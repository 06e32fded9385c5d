"""What may a subresource change? As in the strategies of Kubernetes' own registry."""

import pytest
from embedded_site import Answer, Site, run_on_site
from test_api_writes import PODS, pod

from lictor.core.raw import Json, JsonObject

STRATEGIC = "strategic-merge-patch+json"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RULES = "/apis/rbac.authorization.k8s.io/v1"


def resources(cpu: str, **more: str) -> JsonObject:
    return {"requests": {"cpu": cpu, **more}}


def burstable(name: str) -> JsonObject:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = resources("1", memory="1Gi")
    return made


async def resize(site: Site, container: JsonObject, **more: Json) -> Answer:
    name = (await site.get(f"{PODS}/p")).json["spec"]["containers"][0]["name"]
    spec = {"containers": [{"name": name, **container}], **more}
    return await site.patch(f"{PODS}/p/resize", {"spec": spec}, STRATEGIC)


def test_a_resize_changes_amounts_only() -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, burstable("p"))
        before = (await site.get(f"{PODS}/p")).json
        answer = await resize(
            site,
            {"image": "evil:latest", "command": ["sh"], "resources": resources("2")},
            hostPID=True,
        )
        assert answer.status == 200, answer.text
        after = answer.json["spec"]["containers"][0]
        assert after["resources"] == resources("2", memory="1Gi")
        assert {**after, "resources": None} == {
            **before["spec"]["containers"][0],
            "resources": None,
        }
        assert "hostPID" not in answer.json["spec"]
        labelled = await site.patch(f"{PODS}/p/resize", {"metadata": {"labels": {"a": "b"}}})
        assert "labels" not in labelled.json["metadata"]

    run_on_site(work)


@pytest.mark.parametrize(
    ("container", "told"),
    [
        ({"resources": {"requests": {"cpu": None}}}, "resource requests cannot be removed"),
        ({"resources": {"requests": {"ephemeral-storage": "1Gi"}}}, "only cpu and memory"),
        ({"resources": {"requests": {"cpu": "-1"}}}, "must be greater than or equal to 0"),
        (
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
            "Pod QOS Class may not change",
        ),
        ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}, "only"),
        ({"name": "another", "image": "i"}, "containers may not be added or removed on resize"),
    ],
)
def test_a_resize_is_checked(container: JsonObject, told: str) -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, burstable("p"))
        answer = await resize(site, container)
        assert (answer.status, told in answer.message) == (422, True), answer.text

    run_on_site(work)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n"},
        {"ephemeralContainers": [{"name": "e", "image": "i"}]},
        {"containers": [{"name": "c", "resources": resources("1")}]},
        {"tolerations": [{"key": "node.kubernetes.io/not-ready", "$patch": "delete"}]},
        {"tolerations": []},
        {"nodeSelector": {"a": "b"}},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        {"priority": 7},
    ],
)
def test_an_update_leaves_alone_what_has_its_own_path(spec: JsonObject) -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        kind = "merge-patch+json" if spec == {"tolerations": []} else STRATEGIC
        answer = await site.patch(f"{PODS}/p", {"spec": spec}, kind)
        before = (await site.get(f"{PODS}/p")).json["spec"]
        if answer.status == 200:
            # Defaults bring back what may not go.
            assert answer.json["spec"]["tolerations"] == before["tolerations"]
            assert "tolerations" in spec
        else:
            assert (answer.status, answer.json["reason"]) == (422, "Invalid")

    run_on_site(work)


def test_ephemeral_containers_stay_as_they_are() -> None:
    path = f"{PODS}/p/ephemeralcontainers"

    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))

        async def add(**container: Json) -> Answer:
            return await site.patch(path, {"spec": {"ephemeralContainers": [container]}}, STRATEGIC)

        assert (await add(name="e", image="i")).status == 200
        for container in (
            {"name": "e", "image": "other"},
            {"name": "f"},
            {"name": "f", "image": "i", "ports": [{"containerPort": 1}]},
            {"name": "f", "image": "i", "targetContainerName": "none"},
        ):
            assert (await add(**container)).status == 422, container
        current = (await site.get(f"{PODS}/p")).json
        del current["spec"]["ephemeralContainers"]
        replaced = await site.ask("PUT", path, current)
        assert 'existing ephemeral containers "e" may not be removed' in replaced.message

    run_on_site(work)


def test_a_status_does_not_make_owners() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    patch = {"metadata": {"ownerReferences": [owner], "annotations": {"a": "b"}}}

    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        metadata = (await site.patch(f"{PODS}/p/status", patch)).json["metadata"]
        assert ("ownerReferences" in metadata, metadata["annotations"]) == (False, {"a": "b"})
        policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        await site.create(policies, POLICY)
        metadata = (await site.patch(f"{policies}/v/status", patch)).json["metadata"]
        assert not {"ownerReferences", "annotations"} & set(metadata)

    run_on_site(work)


POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "v"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "validations": [{"expression": "true"}],
    },
}


def test_namespaces_are_finalized_by_finalize_only() -> None:
    path = "/api/v1/namespaces/n"

    async def work(site: Site) -> None:
        await site.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
        changed = await site.patch(path, {"spec": {"finalizers": None}, "metadata": LABELLED})
        assert changed.json["spec"] == {"finalizers": ["kubernetes"]}
        assert changed.json["metadata"]["labels"]["a"] == "b"
        namespace = {**changed.json, "spec": {"finalizers": ["example.com/f"]}}
        finalized = await site.ask("PUT", f"{path}/finalize", namespace)
        assert finalized.json["spec"] == {"finalizers": ["example.com/f"]}

    run_on_site(work)


LABELLED = {"labels": {"a": "b"}}


def condition(kind: str) -> JsonObject:
    return {"type": kind, "status": "True", "reason": "r"}


def test_who_approves_does_not_sign() -> None:
    request = {
        "metadata": {"name": "r"},
        "spec": {"request": "eA==", "signerName": "example.com/s", "usages": ["client auth"]},
    }

    async def work(site: Site) -> None:
        await site.create(REQUESTS, request)
        changed = await site.patch(f"{REQUESTS}/r", {"spec": {"signerName": "example.com/other"}})
        assert changed.json["spec"]["signerName"] == "example.com/s"
        approval = {
            "metadata": {"annotations": {"a": "b"}},
            "status": {"certificate": "eA==", "conditions": [condition("Approved")]},
        }
        approved = (await site.patch(f"{REQUESTS}/r/approval", approval)).json
        assert list(approved["status"]) == ["conditions"]
        assert approved["metadata"]["annotations"] == {"a": "b"}
        both = {"status": {"conditions": [condition("Approved"), condition("Denied")]}}
        for path, patch in (
            ("approval", {"status": {"conditions": []}}),
            ("approval", both),
            ("status", {"status": {"conditions": []}}),
            ("status", both),
        ):
            assert (await site.patch(f"{REQUESTS}/r/{path}", patch)).status == 422, (path, patch)
        signed = await site.patch(f"{REQUESTS}/r/status", {"status": {"certificate": "eA=="}})
        assert (signed.status, signed.json["status"]["certificate"]) == (200, "eA==")
        again = await site.patch(f"{REQUESTS}/r/status", {"status": {"certificate": "eQ=="}})
        assert "updates may not modify existing certificate content" in again.message
        await _check_signers(site)

    run_on_site(work)


async def _check_signers(site: Site) -> None:
    """A right on the subresource is not enough: the signer counts too."""
    rule = {"apiGroups": ["*"], "resources": ["*/approval"], "verbs": ["*"]}
    approval = {"status": {"conditions": [condition("Approved"), condition("Other")]}}
    for name, more in (
        ("alone", []),
        ("together", [{**rule, "resources": ["signers"], "resourceNames": ["example.com/*"]}]),
    ):
        await site.create(
            f"{RULES}/clusterroles", {"metadata": {"name": name}, "rules": [rule, *more]}
        )
        await site.create(
            f"{RULES}/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": name,
                },
                "subjects": [
                    {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
                ],
            },
        )
        answer = await site.ask(
            "PATCH",
            f"{REQUESTS}/r/approval",
            approval,
            "application/merge-patch+json",
            impersonate_user=name,
        )
        assert answer.status == (200 if more else 403), answer.text


# A field of each is of another type, or not what belongs there.
SPOILED: list[tuple[str, Json]] = [
    ("eviction", {"deleteOptions": [1]}),
    ("eviction", {"deleteOptions": {"preconditions": 3}}),
    ("eviction", {"kind": "Pod"}),
    ("eviction", [1]),
    ("binding", {"target": "n"}),
    ("binding", {"metadata": {"annotations": []}, "target": {"name": "n"}}),
    ("binding", {"target": {"name": "n", "kind": "Pod"}}),
]


@pytest.mark.parametrize(("part", "body"), SPOILED)
def test_what_is_sent_to_a_subresource_is_decoded(part: str, body: Json) -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        assert (await site.ask("POST", f"{PODS}/p/{part}", body)).status == 400

    run_on_site(work)


def test_a_binding_is_for_one_pod() -> None:
    bindings = "/api/v1/namespaces/default/bindings"

    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        metadata = {"name": "p", "annotations": {"a": "b"}, "labels": {"c": "d"}}
        binding = {"metadata": metadata, "target": {"name": "n"}}
        other = {**binding, "metadata": {"name": "p", "uid": "another"}}
        assert (await site.ask("POST", bindings, other)).status == 409
        assert (await site.ask("POST", bindings, binding)).json["status"] == "Success"
        bound = (await site.get(f"{PODS}/p")).json
        assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"a": "b"})
        assert "labels" not in bound["metadata"]

    run_on_site(work)
