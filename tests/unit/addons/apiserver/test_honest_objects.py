"""Is every kind of object created, also in a namespace that asks for Pod Security and policies?"""

import pytest
from embedded_site import Site, run_on_site
from malformed import KINDS, make_honest
from test_object_parts import POLICY

from lictor.addons.apiserver.kinds.catalogue import build_catalogue

LEVELS = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("warn", "audit")}
RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}


def test_there_is_one_of_each_kind() -> None:
    assert {kind.kind for kind in build_catalogue()} - set(KINDS) == set()


@pytest.mark.parametrize("with_policy", [False, True])
def test_every_honest_object_is_taken(*, with_policy: bool) -> None:
    expression = "has(object.metadata) || oldObject == null"
    spec = {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": expression}],
    }

    async def work(site: Site) -> None:
        await site.patch("/api/v1/namespaces/default", {"metadata": {"labels": LEVELS}})
        if with_policy:
            group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
            await site.create(f"{group}ies", {**POLICY, "spec": spec})
            binding = {"policyName": "v", "validationActions": ["Deny"]}
            named = {"metadata": {"name": "v"}, "spec": binding}
            await site.create(f"{group}ybindings", named)
        refused = []
        for kind, path in KINDS.items():
            answer = await site.ask("POST", path, make_honest(kind))
            if answer.status != 201:
                refused.append((kind, answer.status, answer.text[:300]))
            elif kind == "CustomResourceDefinition":
                await site.until("/apis/lictor.test/v1", lambda found: found.status == 200)
        assert refused == []

    run_on_site(work)


def test_of_many_faults_the_first_are_told() -> None:
    """Looking for all half a million of them took the server half a minute."""

    async def work(site: Site) -> None:
        spec = {"containers": [{"name": "c", "image": "i", "env": [{}] * 5000}]}
        answer = await site.ask("POST", KINDS["Pod"], {**make_honest("Pod", "many"), "spec": spec})
        assert (answer.status, len(answer.json["details"]["causes"])) == (422, 100)
        kind = site.server.catalogue.find("", "v1", "pods")
        causes = kind.schema.validate({**make_honest("Pod", "many"), "spec": spec}, None)
        assert len(causes) == 1000

    run_on_site(work)
