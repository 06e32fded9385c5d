"""Do the embedded API server and Kubernetes' own list the same verbs, and answer only those?"""

import pytest
from control_plane.build import KUBERNETES
from resource_verbs import explain, list_calls

from lictor.core.facts.facts import RELEASE, load_served_kinds
from lictor.core.facts.resource_names import builtin_names

pytestmark = pytest.mark.skipif(
    KUBERNETES != RELEASE, reason=f"the facts are those of {RELEASE}, the cluster is {KUBERNETES}"
)


def list_facts() -> dict[str, dict[str, set[str]]]:
    """Verbs by version and resource, as the embedded API server has them."""
    table = {}
    for version, kinds in load_served_kinds().items():
        group, _, name = version.rpartition("/")
        verbs = table.setdefault(version, {})
        for kind, facts in kinds.items():
            plural = builtin_names().of_kind(group, name, kind).resource
            verbs[plural] = set(facts.verbs)
            for part, described in facts.subresources.items():
                verbs[f"{plural}/{part}"] = set(described.verbs)
    return table


def find_path(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


FACTS = list_facts()


@pytest.mark.parametrize("version", FACTS)
def test_discovery_lists_the_verbs_that_are_known(cluster, version):
    with cluster.connect() as client:
        entries = client.get(find_path(version)).json()["resources"]
    listed = {each["name"]: set(each["verbs"]) for each in entries}
    # These two lists differ where a release or a feature gate brings a kind of its own.
    assert {name: listed.get(name) for name in FACTS[version]} == FACTS[version]


@pytest.mark.parametrize("version", FACTS)
def test_what_is_not_listed_is_refused(cluster, version):
    path = find_path(version)
    with cluster.connect() as client:
        entries = client.get(path).json()["resources"]
        known = [each for each in entries if each["name"] in FACTS[version]]
        wrong = []
        for call in list_calls(path, known, "default"):
            answer = client.request(
                call.method,
                call.path,
                content=call.body,
                headers={"content-type": call.content_type},
            )
            wrong.append(explain(call, answer.status_code, answer.text))
    assert [each for each in wrong if each] == []
