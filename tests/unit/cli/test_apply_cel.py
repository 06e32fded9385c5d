"""`apply` with policies in CEL: payloads, parameters, definitions, exceptions, deletions."""

import json

import pytest
import yaml

from lictor.cli.exit_codes import run

VALIDATING = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: owner, annotations: {policies.kyverno.io/severity: high}}
spec:
  validationActions: [Audit]
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - expression: "has(object.metadata.labels)"
    message: whose is it?
"""
CLASSIC = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: classic}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {annotations: {seen: "yes"}}}}
"""
EXCEPTION = """
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: spared, namespace: platform}
spec:
  policyRefs: [{name: owner, kind: ValidatingPolicy}]
  matchConditions: [{name: by-name, expression: "object.metadata.name == 'bare'"}]
"""
ADMISSION = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - expression: "object.data.size() <= int(params.data.most)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec:
  policyName: few
  validationActions: [Deny]
  paramRef: {name: limits, namespace: platform, parameterNotFoundAction: Deny}
"""
LIMITS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: platform}\ndata: {most: '1'}\n"
PAYLOAD_POLICY = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: small}
spec:
  evaluation: {mode: JSON}
  validations: [{expression: "object.size < 10", message: too big}]
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: gate}
spec:
  evaluation: {mode: HTTP}
  validations: [{expression: "http.Denied('no').Response()"}]
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: proxy}
spec:
  evaluation: {mode: Envoy}
  validations: [{expression: "envoy.Allowed().Response()"}]
"""
ZOO = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: tame}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [zoo.example], apiVersions: [v1], operations: [CREATE], resources: [NAME]}
  validations: [{expression: "object.spec.arms <= 8"}]
"""
OCTOPUS = "apiVersion: zoo.example/v1\nkind: Octopus\nmetadata: {name: o}\nspec: {arms: 9}\n"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: octopodes.zoo.example}
spec:
  group: zoo.example
  scope: Namespaced
  names: {kind: Octopus, plural: octopodes}
  versions: [{name: v1, served: true, storage: true}]
"""
DELETING = """
apiVersion: policies.kyverno.io/v1
kind: DeletingPolicy
metadata: {name: sweep}
spec:
  schedule: "0 4 * * *"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}
  conditions: [{name: bare, expression: "!has(object.metadata.labels)"}]
"""
MAPS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: owned, namespace: shop, labels: {owner: ada}}
data: {a: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bare, namespace: shop}
data: {a: "1", b: "2"}
"""


NEW_FUNCTION = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: new}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{expression: "['owned', 'bare'].includes(object.metadata.name)"}]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "owner.yaml": VALIDATING,
        "classic.yaml": CLASSIC,
        "exception.yaml": EXCEPTION,
        "admission.yaml": ADMISSION,
        "limits.yaml": LIMITS,
        "new.yaml": NEW_FUNCTION,
        "payloads.yaml": PAYLOAD_POLICY,
        "zoo.yaml": ZOO.replace("NAME", "octopodes"),
        "zoo-usual.yaml": ZOO.replace("NAME", "octopuses"),
        "octopus.yaml": OCTOPUS,
        "crd.yaml": DEFINITION,
        "deleting.yaml": DELETING,
        "maps.yaml": MAPS,
        "big.json": '{"size": 12}',
        "small.json": '{"size": 1, "kind": "ConfigMap", "apiVersion": "v1"}',
        "list.json": "[1]",
        "request.json": '{"attributes": {"method": "GET"}}',
    }.items():
        (tmp_path / name).write_text(text)


def apply(capsys, *arguments):
    code = run(["apply", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def counts(out):
    line = next(line for line in out.splitlines() if line.startswith("pass:"))
    return {name: int(value) for name, value in (part.split(":") for part in line.split(","))}


def test_families_are_judged_together(capsys):
    code, out, _ = apply(capsys, "owner.yaml", "classic.yaml", "-r", "maps.yaml")
    assert code == 1
    assert "Applying 2 policy rule(s) to 2 resource(s)..." in out
    assert "policy owner -> resource shop/ConfigMap/bare failed:\n1 -  whose is it?" in out
    assert counts(out) == {"pass": 3, " fail": 1, " warn": 0, " error": 0, " skip": 0}


def test_audit_is_a_warning_where_one_wants_that(capsys):
    code, out, _ = apply(capsys, "owner.yaml", "-r", "maps.yaml", "--audit-warn")
    assert code == 0
    assert "failed as audit warning" in out


@pytest.mark.parametrize(
    "flags",
    [
        ("-e", "exception.yaml"),
        ("--exceptions", "exception.yaml"),
        ("exception.yaml", "--exceptions-within-policies"),
        ("-r", "exception.yaml", "--exceptions-with-resources"),
    ],
)
def test_exceptions_are_found_and_counted(capsys, flags):
    code, out, _ = apply(capsys, "owner.yaml", "-r", "maps.yaml", *flags)
    assert code == 0
    assert "with 1 exception(s)..." in out
    assert counts(out)[" skip"] == 1


def test_reports_name_the_exception_and_the_source(capsys):
    _, out, _ = apply(capsys, "owner.yaml", "-r", "maps.yaml", "-e", "exception.yaml", "-p")
    results = yaml.safe_load(out)["results"]
    assert [(r["result"], r.get("rule")) for r in results] == [
        ("pass", None),
        ("skip", "exception"),
    ]
    assert {r["source"] for r in results} == {"KyvernoValidatingPolicy"}
    assert results[1]["properties"]["exceptions"] == "spared"
    assert results[0]["severity"] == "high"


@pytest.mark.parametrize(
    ("flags", "passed", "failed"), [(("--parameter-resource", "limits.yaml"), 1, 1), ((), 0, 2)]
)
def test_parameters(capsys, flags, passed, failed):
    _, out, _ = apply(capsys, "admission.yaml", "-r", "maps.yaml", *flags)
    found = counts(out)
    assert (found["pass"], found[" fail"] + found[" error"]) == (passed, failed)


@pytest.mark.parametrize(
    ("flag", "files", "code", "said"),
    [
        ("--json", ["big.json"], 1, "policy small -> resource JSON payload failed:\n1 -  too big"),
        ("--json", ["small.json"], 0, "pass: 1, fail: 0"),
        ("--json", ["small.json", "big.json"], 1, "pass: 1, fail: 1"),
        ("--http-payload", ["request.json"], 1, "request denied, reason: no"),
        ("--envoy-payload", ["request.json"], 0, "pass: 1, fail: 0"),
    ],
)
def test_payloads_meet_the_policies_of_their_mode(capsys, flag, files, code, said):
    flags = [part for file in files for part in (flag, file)]
    given, out, _ = apply(capsys, "payloads.yaml", "owner.yaml", *flags)
    assert given == code
    assert said in out


def test_a_payload_is_an_object(capsys):
    code, _, err = apply(capsys, "payloads.yaml", "--json", "list.json")
    assert code == 1
    assert "list.json:1: a payload is an object" in err


def test_policies_on_services_leave_resources_alone(capsys):
    _, out, _ = apply(capsys, "payloads.yaml", "-r", "maps.yaml")
    # Only the policy of mode JSON judges them, and finds no size.
    assert counts(out) == {"pass": 0, " fail": 0, " warn": 0, " error": 2, " skip": 0}


@pytest.mark.parametrize(
    ("policies", "flags", "found"),
    [
        (["zoo.yaml"], ["--crd-path", "crd.yaml"], 1),
        (["zoo.yaml"], ["--crd-path", "."], 1),
        (["zoo.yaml"], ["--crd-paths", "crd.yaml,crd.yaml"], 1),
        (["zoo.yaml"], ["-r", "crd.yaml"], 1),
        (["zoo.yaml", "crd.yaml"], [], 1),
        (["zoo.yaml"], [], 0),
    ],
)
def test_definitions_tell_the_names_of_resources(capsys, policies, flags, found):
    _, out, err = apply(capsys, *policies, "-r", "octopus.yaml", *flags)
    assert counts(out)[" fail"] == found
    assert ("note:" in err) is not bool(found)


def test_a_guess_is_told_once(capsys, tmp_path):
    (tmp_path / "many.yaml").write_text("---\n".join([OCTOPUS] * 3))
    _, out, err = apply(capsys, "zoo-usual.yaml", "-r", "many.yaml")
    assert counts(out)[" fail"] == 3
    assert (
        err.count("note: the resource name of zoo.example/v1 Octopus in resourceRules is unknown")
        == 1
    )
    assert '"octopuses"' in err


def test_what_would_be_deleted(capsys):
    code, out, _ = apply(capsys, "deleting.yaml", "-r", "maps.yaml")
    assert code == 0
    assert "policy sweep would delete at " in out
    assert "\n  shop/ConfigMap/bare\n" in out
    assert "owned" not in out


def test_exceptions_are_made_for_violations(capsys, tmp_path):
    _, out, _ = apply(
        capsys, "owner.yaml", "admission.yaml", "-r", "maps.yaml", "--generate-exceptions"
    )
    (made,) = [each for each in yaml.safe_load_all(out) if each]
    assert made["spec"]["policyRefs"] == [{"name": "owner", "kind": "ValidatingPolicy"}]
    (tmp_path / "made.yaml").write_text(out)
    code, out, _ = apply(capsys, "owner.yaml", "-r", "maps.yaml", "-e", "made.yaml")
    assert (code, counts(out)[" skip"]) == (0, 1)


def test_sarif_names_the_file(capsys):
    _, out, _ = apply(capsys, "owner.yaml", "-r", "maps.yaml", "--output-format", "sarif")
    (result,) = json.loads(out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "maps.yaml"
    assert place["region"]["startLine"] == 7


def test_several_processes_say_the_same(capsys, tmp_path):
    (tmp_path / "many.yaml").write_text("---\n".join([OCTOPUS] * 60))
    single = apply(capsys, "zoo-usual.yaml", "-r", "many.yaml", "--parallel", "1")
    several = apply(capsys, "zoo-usual.yaml", "-r", "many.yaml", "--parallel", "2")
    assert single == several


def test_broken_policies_are_named(capsys, tmp_path):
    (tmp_path / "broken.yaml").write_text(VALIDATING.replace("spec:", "spec: 1\nother:"))
    code, out, _ = apply(capsys, "broken.yaml", "-r", "maps.yaml")
    assert code == 1
    assert "Invalid Policies:\n1. owner (broken.yaml:" in out
    (tmp_path / "wrong.yaml").write_text(VALIDATING.replace("has(object", "has(objct"))
    code, out, _ = apply(capsys, "wrong.yaml", "-r", "maps.yaml")
    assert code == 1
    assert "did you mean 'object'?" in out


def test_deprecated_kinds_are_warned_about_on_request(tmp_path, capsys):
    policy = tmp_path / "classic.yaml"
    policy.write_text(
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {rules: [{"
        "name: r, match: {any: [{resources: {kinds: [ConfigMap]}}]}, "
        "validate: {message: m, pattern: {metadata: {name: '*'}}}}]}}"
    )
    text = f"Warning: {policy}: kyverno.io/v1 ClusterPolicy is deprecated"
    _, out, err = apply(capsys, str(policy), "-r", "maps.yaml")
    assert text not in out + err
    code, _, err = apply(capsys, str(policy), "-r", "maps.yaml", "--deprecation-warnings")
    assert code == 0
    assert text in err
    code, _, err = apply(capsys, str(policy), "-r", "maps.yaml", "--warnings-as-errors")
    assert code == 1
    assert "found 1 deprecation warning(s) and --warnings-as-errors is set" in err


@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        ((), "pass: 2, fail: 0, warn: 0, error: 0"),
        (("--kubernetes-version", "1.37"), "pass: 2, fail: 0, warn: 0, error: 0"),
        (("--kubernetes-version", "v1.36"), "pass: 0, fail: 0, warn: 0, error: 2"),
    ],
)
def test_expressions_are_those_of_a_release(capsys, flags, counts):
    run(["apply", "new.yaml", "-r", "maps.yaml", *flags])
    assert counts in capsys.readouterr().out


@pytest.mark.parametrize("version", ["1.29", "1.38", "x"])
def test_unknown_releases_are_refused(capsys, version):
    assert run(["apply", "new.yaml", "-r", "maps.yaml", "--kubernetes-version", version]) == 1
    assert "use 1.30 to 1.37" in capsys.readouterr().err
