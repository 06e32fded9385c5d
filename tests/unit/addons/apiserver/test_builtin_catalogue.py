"""Which kinds are there, and what happens when definitions come and go?"""

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue, sort_versions
from lictor.core.facts.facts import load_section

CRD = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing, singular: thing, shortNames: [th], categories: [all]}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object}}
  - {name: v1alpha1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
""")


@pytest.fixture
def catalogue():
    return build_catalogue()


@pytest.mark.parametrize(
    ("place", "kind", "namespaced", "status"),
    [
        (("", "v1", "pods"), "Pod", True, True),
        (("", "v1", "configmaps"), "ConfigMap", True, False),
        (("", "v1", "namespaces"), "Namespace", False, True),
        (("apps", "v1", "deployments"), "Deployment", True, True),
        (("rbac.authorization.k8s.io", "v1", "clusterroles"), "ClusterRole", False, False),
        (
            ("admissionregistration.k8s.io", "v1beta1", "mutatingadmissionpolicies"),
            "MutatingAdmissionPolicy",
            False,
            False,
        ),
    ],
)
def test_builtin_kinds(catalogue, place, kind, namespaced, status):
    found = catalogue.find(*place)

    assert (found.kind, found.namespaced, found.has_status) == (kind, namespaced, status)
    assert catalogue.find_kind(found.api_version, kind) is found


def test_every_builtin_kind_has_fields_in_the_other_table(catalogue):
    fields = load_section("kinds")

    missing = [k.resource for k in catalogue if k.kind not in fields.get(k.api_version, {})]

    assert missing == []


def test_every_type_of_the_table_is_one_of_the_other_table():
    # These are known to this release, or kept in no object.
    unknown = set(load_section("fields")) - set(load_section("types"))

    assert {name for name in unknown if name.startswith(("core.", "apps.", "batch."))} == set()


def test_preferred_version_is_the_one_in_which_objects_are_kept(catalogue):
    catalogue.define(CRD)

    assert catalogue.preferred("example.com", "things").version == "v1"
    assert catalogue.preferred("autoscaling", "horizontalpodautoscalers").version == "v2"
    assert catalogue.preferred("example.com", "nothing") is None


def test_definitions_come_and_go(catalogue):
    heard = []
    catalogue.listen(lambda: heard.append(catalogue.groups()[-1]))

    catalogue.define(CRD)
    thing = catalogue.find("example.com", "v1", "things")
    assert (thing.kind, thing.short_names, thing.is_custom) == ("Thing", ("th",), True)
    assert thing.has_status
    assert not catalogue.find("example.com", "v1beta1", "things").has_status
    assert catalogue.find("example.com", "v1alpha1", "things") is None
    assert catalogue.versions("example.com") == ("v1", "v1beta1")

    catalogue.forget("things.example.com")
    assert catalogue.find("example.com", "v1", "things") is None
    assert catalogue.versions("example.com") == ()
    assert heard == ["example.com", "storagemigration.k8s.io"]


def test_forgetting_what_was_never_there_is_fine(catalogue):
    catalogue.forget("nothing.example.com")


def test_versions_in_the_order_of_kubernetes():
    given = {"v1", "v10", "v2", "v1beta1", "v1beta2", "v1alpha1", "v11alpha2", "foo", "bar1"}

    assert sort_versions(given) == (
        "v10", "v2", "v1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "bar1", "foo",
    )  # fmt: skip
