"""`convert` on the command line: exit codes, where texts go, and what is told of differences."""

import json

import pytest
import yaml

from lictor.cli import exit_codes

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: volumes
spec:
  rules:
  - name: types
    match:
      any:
      - resources:
          kinds: [PersistentVolumeClaim]
    validate:
      message: only one writer
      deny:
        conditions:
          any:
          - key: "{{ request.object.spec.accessModes[] || `[]` }}"
            operator: AnyNotIn
            value: [ReadWriteOnce]
"""
REFUSED = POLICY.replace("name: volumes", "name: roles").replace(
    "    validate:\n", "    exclude:\n      any:\n      - clusterRoles: [admin]\n    validate:\n"
)
CUSTOM = POLICY.replace("PersistentVolumeClaim", "Mouse")
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mice.corp.io}
spec:
  group: corp.io
  scope: Namespaced
  names: {kind: Mouse, plural: mice}
  versions: [{name: v1, served: true}]
"""
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: default}
spec: {accessModes: [ReadWriteMany]}
"""
# Not what an API server would show to a policy: there, null is gone.
ODD = CLAIM.replace("[ReadWriteMany]", "null")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        code = exit_codes.run(["convert", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_new_policies_go_to_standard_output_and_the_rest_to_standard_error(run):
    code, out, err = run("policy.yaml", policy=POLICY)
    (document,) = yaml.safe_load_all(out)
    assert (code, document["kind"]) == (0, "ValidatingPolicy")
    assert list(document) == ["apiVersion", "kind", "metadata", "spec"]
    assert "volumes: converted" in err
    assert "no difference" in err


def test_a_refusal_says_why_and_other_policies_are_converted(run):
    code, out, err = run("policy.yaml", "refused.yaml", policy=POLICY, refused=REFUSED)
    assert code == 1
    assert [d["metadata"]["name"] for d in yaml.safe_load_all(out)] == ["volumes"]
    assert "roles: refused; rule types: roles and clusterRoles" in err


def test_given_resources_are_judged_too(run):
    code, _, err = run("policy.yaml", "-r", "claim.yaml", policy=POLICY, claim=CLAIM)
    assert code == 0
    assert "1 refused" not in err


def test_differences_are_told(run):
    code, out, err = run("policy.yaml", "-r", "odd.yaml", policy=POLICY, odd=ODD)
    assert code == 1
    assert out
    assert "1 evaluated differently" in err
    assert "CREATE default/PersistentVolumeClaim/claim" in err
    assert "classic: not refused" in err


def test_files_are_written_for_each_policy(run, tmp_path):
    code, out, _ = run("policy.yaml", "-o", "new", policy=POLICY)
    assert (code, out) == (0, "")
    written = yaml.safe_load((tmp_path / "new" / "volumes.yaml").read_text(encoding="utf-8"))
    assert written["metadata"]["name"] == "volumes"


def test_json(run):
    code, out, _ = run("policy.yaml", "--format", "json", policy=POLICY)
    assert (code, json.loads(out)["kind"]) == (0, "ValidatingPolicy")
    target = ("--to", "ValidatingAdmissionPolicy")
    code, out, _ = run("policy.yaml", "--format", "json", *target, policy=POLICY)
    kinds = [item["kind"] for item in json.loads(out)["items"]]
    assert kinds == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def test_given_crds_tell_the_names_of_resources(run):
    code, out, err = run("custom.yaml", "-r", "crd.yaml", custom=CUSTOM, crd=CRD)
    (rule,) = yaml.safe_load(out)["spec"]["matchConstraints"]["resourceRules"]
    assert (code, rule["apiGroups"], rule["resources"]) == (0, ["corp.io"], ["mice"])
    assert "note" not in err
    _, out, err = run("custom.yaml", custom=CUSTOM)
    assert "mouses is the usual plural" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("policy.yaml", "--to", "Nothing"), 2),
        (("policy.yaml", "--what"), 2),
        (("absent.yaml",), 1),
        (("claim.yaml",), 1),
    ],
)
def test_wrong_calls(run, arguments, code):
    answer, out, err = run(*arguments, policy=POLICY, claim=CLAIM)
    assert (answer, out) == (code, "")
    assert err.startswith("Error:")
