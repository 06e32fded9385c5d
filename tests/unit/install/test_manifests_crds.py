"""The definitions of all kinds: names, versions, columns, and schemas that take what is right."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from lictor.core.errors import UsageError
from lictor.install.crds import build_crds

ROOT = Path(__file__).parents[3]
# kind -> short name, scope, versions: * is stored, ! deprecated, - not served
KINDS = {
    "clusterpolicies.kyverno.io": "cpol Cluster v1*! v2beta1!",
    "policies.kyverno.io": "pol Namespaced v1*! v2beta1!",
    "policyexceptions.kyverno.io": "polex Namespaced v2*! v2beta1!",
    "cleanuppolicies.kyverno.io": "cleanpol Namespaced v2*! v2beta1!",
    "clustercleanuppolicies.kyverno.io": "ccleanpol Cluster v2*! v2beta1!",
    "globalcontextentries.kyverno.io": "gctxentry Cluster v2 v2beta1* v2alpha1!",
    "updaterequests.kyverno.io": "ur Namespaced v2* v1beta1!-",
    "validatingpolicies.policies.kyverno.io": "vpol Cluster v1 v1beta1* v1alpha1!",
    "namespacedvalidatingpolicies.policies.kyverno.io": "nvpol Namespaced v1 v1beta1*",
    "mutatingpolicies.policies.kyverno.io": "mpol Cluster v1 v1beta1* v1alpha1!",
    "namespacedmutatingpolicies.policies.kyverno.io": "nmpol Namespaced v1 v1beta1*",
    "generatingpolicies.policies.kyverno.io": "gpol Cluster v1 v1beta1* v1alpha1!",
    "namespacedgeneratingpolicies.policies.kyverno.io": "ngpol Namespaced v1 v1beta1*",
    "deletingpolicies.policies.kyverno.io": "dpol Cluster v1 v1beta1* v1alpha1!",
    "namespaceddeletingpolicies.policies.kyverno.io": "ndpol Namespaced v1 v1beta1*",
    "imagevalidatingpolicies.policies.kyverno.io": "ivpol Cluster v1 v1beta1* v1alpha1!",
    "namespacedimagevalidatingpolicies.policies.kyverno.io": "nivpol Namespaced v1 v1beta1*",
    "policyexceptions.policies.kyverno.io": "- Namespaced v1 v1beta1* v1alpha1!",
    "clusteradmissionpolicies.policies.kubewarden.io": "cap Cluster v1* v1alpha2!",
    "admissionpolicies.policies.kubewarden.io": "ap Namespaced v1* v1alpha2!",
    "clusteradmissionpolicygroups.policies.kubewarden.io": "capg Cluster v1*",
    "admissionpolicygroups.policies.kubewarden.io": "apg Namespaced v1*",
    "policyservers.policies.kubewarden.io": "ps Cluster v1* v1alpha2!",
    "ephemeralreports.reports.kyverno.io": "ephr Namespaced v1*",
    "clusterephemeralreports.reports.kyverno.io": "cephr Cluster v1*",
    "policyreports.wgpolicyk8s.io": "polr Namespaced v1alpha2*",
    "clusterpolicyreports.wgpolicyk8s.io": "cpolr Cluster v1alpha2*",
    "reports.openreports.io": "reps Namespaced v1alpha1*",
    "clusterreports.openreports.io": "creps Cluster v1alpha1*",
}
CRDS = {crd["metadata"]["name"]: crd for crd in build_crds(open_reports=True)}


def test_all_kinds_are_there():
    assert set(CRDS) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_kind(name):
    spec = CRDS[name]["spec"]
    versions = [
        version["name"]
        + ("*" if version["storage"] else "")
        + ("!" if version.get("deprecated") else "")
        + ("" if version["served"] else "-")
        for version in spec["versions"]
    ]
    short = spec["names"].get("shortNames", ["-"])[0]
    assert " ".join([short, spec["scope"], *versions]) == KINDS[name]
    assert f"{spec['names']['plural']}.{spec['group']}" == name


def list_versions():
    return [
        pytest.param(version, id=f"{name}-{version['name']}")
        for name, crd in CRDS.items()
        for version in crd["spec"]["versions"]
    ]


def find_faults(schema, path=""):
    """What would make an API server call a schema not structural."""
    faults = []
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if "type" not in schema and not is_open:
        faults.append(f"{path}: no type")
    if "additionalProperties" in schema and "properties" in schema:
        faults.append(f"{path}: properties and additionalProperties")
    if schema.get("type") == "array" and "items" not in schema:
        faults.append(f"{path}: no items")
    if schema.get("x-kubernetes-list-type") == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        if not set(keys) <= set(schema["items"].get("required", ())):
            faults.append(f"{path}: a key of the list may be missing")
    if set(schema.get("required", ())) - set(schema.get("properties", ())):
        faults.append(f"{path}: a required field that is not there")
    for name, part in schema.get("properties", {}).items():
        faults += find_faults(part, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            faults += find_faults(schema[part], f"{path}[]")
    return faults


@pytest.mark.parametrize("version", list_versions())
def test_schema_is_structural(version):
    assert find_faults(version["schema"]["openAPIV3Schema"]) == []


@pytest.mark.parametrize("version", list_versions())
def test_columns_show_fields_that_are_there(version):
    schema = version["schema"]["openAPIV3Schema"]
    for column in version.get("additionalPrinterColumns", ()):
        place = schema
        for word in column["jsonPath"].partition("[")[0].strip(".").split("."):
            if word == "metadata":
                break
            place = place["properties"][word]


def test_policies_look_as_people_know_them():
    columns = CRDS["clusterpolicies.kyverno.io"]["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if "priority" not in column]
    wide = [column["name"] for column in columns if column.get("priority") == 1]
    assert shown == ["ADMISSION", "BACKGROUND", "READY", "AGE", "MESSAGE"]
    assert wide == ["FAILURE POLICY", "VALIDATE", "MUTATE", "GENERATE", "VERIFY IMAGES"]


def test_definitions_fit_into_the_annotation_of_a_plain_kubectl_apply():
    assert all(len(json.dumps(crd)) < 262_144 for crd in CRDS.values())


def test_groups_are_chosen():
    def groups(made):
        return sorted({crd["spec"]["group"] for crd in made})

    assert "openreports.io" not in groups(build_crds())
    assert groups(build_crds(["wgpolicyk8s.io"])) == ["wgpolicyk8s.io"]
    assert groups(build_crds(["kyverno.io"], open_reports=True)) == ["kyverno.io", "openreports.io"]
    with pytest.raises(UsageError, match="unknown group kyverno"):
        build_crds(["kyverno"])


# --- what schemas take


def close(schema):
    """The schema as kubectl's strict validation reads it: unknown fields are mistakes."""
    closed = {
        key: value
        for key, value in schema.items()
        if key in ("type", "enum", "required", "oneOf", "not", "maxLength", "minimum", "minItems")
    }
    for key in ("items", "additionalProperties"):
        if key in schema:
            closed[key] = close(schema[key])
    if "properties" in schema:
        closed["properties"] = {name: close(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    return closed


def build_validators():
    validators = {}
    for crd in CRDS.values():
        spec = crd["spec"]
        for version in spec["versions"]:
            schema = close(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {}
            key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            validators[key] = jsonschema.Draft202012Validator(schema)
    return validators


VALIDATORS = build_validators()


def list_documents():
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        for number, document in enumerate(yaml.safe_load_all(path.read_text(encoding="utf-8"))):
            if isinstance(document, dict):
                key = document.get("apiVersion"), document.get("kind")
                if key in VALIDATORS:
                    name = f"{path.relative_to(ROOT)}-{number}"
                    yield pytest.param(document, VALIDATORS[key], id=name)


@pytest.mark.parametrize(("document", "validator"), list(list_documents()))
def test_examples_are_accepted(document, validator):
    assert [error.message for error in validator.iter_errors(document)] == []


POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: a}
spec:
  rules:
  - name: b
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {pattern: {a: b}}
"""
REFUSED = [
    ("rules:", "rulez:", "rulez"),
    ("name: b", f"name: {'b' * 64}", "too long"),
    ("    match: {any: [{resources: {kinds: [Pod]}}]}\n", "", "'match' is a required property"),
    ("any: [", "all: [], any: [", "should not be valid"),
    ("validate: {", "validate: {failureAction: enforce, ", "'enforce' is not one of"),
    ("kinds: [Pod]", "kinds: Pod", "is not of type 'array'"),
    ("validate: {", "validate: {message: 1, ", "is not of type 'string'"),
    ("spec:\n", "spec:\n  validationFailureAction: Enforced\n", "'Enforced' is not one of"),
    ("kinds: [Pod]", "kinds: [Pod], operations: [create]", "'create' is not one of"),
    ("    validate:", "    context: [{name: c}]\n    validate:", "is not valid under any of"),
]


def test_a_plain_policy_is_accepted():
    VALIDATORS["kyverno.io/v1", "ClusterPolicy"].validate(yaml.safe_load(POLICY))


@pytest.mark.parametrize(("old", "new", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_a_mistake_is_refused(old, new, said):
    assert old in POLICY
    validator = VALIDATORS["kyverno.io/v1", "ClusterPolicy"]
    errors = validator.iter_errors(yaml.safe_load(POLICY.replace(old, new)))
    assert any(said in error.message for error in errors)


def test_the_newer_version_takes_only_any_and_all():
    older = POLICY.replace("match: {any: [{resources: {kinds: [Pod]}}]}", "match: {resources: {}}")
    VALIDATORS["kyverno.io/v1", "ClusterPolicy"].validate(yaml.safe_load(older))
    newer = yaml.safe_load(older.replace("kyverno.io/v1", "kyverno.io/v2beta1"))
    assert not VALIDATORS["kyverno.io/v2beta1", "ClusterPolicy"].is_valid(newer)


def test_classic_kinds_warn_as_in_kyverno():
    texts = {
        f"{name} {version['name']}": version["deprecationWarning"]
        for name, crd in CRDS.items()
        for version in crd["spec"]["versions"]
        if "deprecationWarning" in version
    }
    assert len(texts) == 12
    assert texts["clusterpolicies.kyverno.io v1"] == (
        "kyverno.io/v1 ClusterPolicy is deprecated and will be removed in a future release; migrate "
        "to ValidatingPolicy, MutatingPolicy, GeneratingPolicy or ImageValidatingPolicy "
        "(policies.kyverno.io), see https://kyverno.io/docs/guides/migration-to-cel/"
    )
    assert texts["globalcontextentries.kyverno.io v2alpha1"] == (
        "kyverno.io/v2alpha1 GlobalContextEntry is deprecated; use kyverno.io/v2 GlobalContextEntry"
    )


def test_the_warnings_can_be_switched_off():
    written = [v for crd in build_crds(warns=False) for v in crd["spec"]["versions"]]
    assert not any("deprecationWarning" in version for version in written)
