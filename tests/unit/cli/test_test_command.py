"""`test`: expectations of files against what policies say."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    exclude: {any: [{resources: {namespaces: [spare]}}]}
    validate:
      message: a team is needed
      pattern: {metadata: {labels: {team: "?*"}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: add-owner}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Pod], names: [good]}}]}
    mutate:
      patchStrategicMerge: {metadata: {labels: {owner: me}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: make-quota}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: limits
      namespace: "{{ request.object.metadata.name }}"
      data: {data: {cpu: "1"}}
"""
RESOURCES = """
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
---
apiVersion: v1
kind: Pod
metadata: {name: free, namespace: spare}
---
apiVersion: v1
kind: Pod
metadata: {name: twin, namespace: one, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: twin, namespace: two}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {metadata: {labels: {team: a}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: home}
"""
PATCHED = """
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {team: a, owner: OWNER}}
"""
MADE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: home}
data: {cpu: "1"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "policy.yaml": POLICY,
        "resources.yaml": RESOURCES,
        "patched.yaml": PATCHED.replace("OWNER", "me"),
        "other.yaml": PATCHED.replace("OWNER", "you"),
        "strange.yaml": PATCHED.replace("name: good", "name: nobody"),
        "made.yaml": MADE,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def write_test(*rows: dict, file: str = "kyverno-test.yaml", **more: object) -> None:
    test = {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Test",
        "metadata": {"name": "t"},
        "policies": ["policy.yaml"],
        "resources": ["resources.yaml"],
        "results": list(rows),
        **more,
    }
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(yaml.safe_dump(test))


def team(*resources: str, result: str = "pass", **more: object) -> dict:
    names = {"resources": list(resources)} if resources else {}
    return {"policy": "need-team", "rule": "team", "result": result, "kind": "Pod", **names, **more}


def owner(**more: object) -> dict:
    return {"policy": "add-owner", "rule": "owner", "kind": "Pod", "resources": ["good"], **more}


def quota(**more: object) -> dict:
    row = {"policy": "make-quota", "rule": "quota", "kind": "Namespace", "resources": ["home"]}
    return {**row, **more}


def test(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    code = run(["test", ".", *flags])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


test.__test__ = False  # type: ignore[attr-defined]


def outcomes(capsys, *flags: str) -> tuple[int, list[tuple[str, str, str]]]:
    code, out, _ = test(capsys, "-o", "json", *flags)
    return code, [(row["RESOURCE"], row["RESULT"], row["REASON"]) for row in json.loads(out)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (team("good"), [("v1/Pod/default/good", "Pass", "Ok")]),
        (team("bad", result="fail"), [("v1/Pod/default/bad", "Pass", "Ok")]),
        (team("bad"), [("v1/Pod/default/bad", "Fail", "Want pass, got fail")]),
        (team("free", result="skip"), [("v1/Pod/spare/free", "Pass", "Excluded")]),
        *(
            (
                team("free", result=result),
                [("v1/Pod/spare/free", "Fail", f"Want {result}, got Excluded")],
            )
            for result in ("pass", "fail", "warn", "error")
        ),
        # No rule has this name: nothing was checked.
        (team("good", rule="taem"), [("v1/Pod/default/good", "Fail", "Want pass, got Excluded")]),
        (team("one/twin"), [("v1/Pod/one/twin", "Pass", "Ok")]),
        (
            team("twin", result="fail"),
            [("v1/Pod/one/twin", "Fail", "Want fail, got pass"), ("v1/Pod/two/twin", "Pass", "Ok")],
        ),
        (team("web"), [("apps/v1/Deployment/default/web", "Pass", "Ok")]),
        (
            team(
                resourceSpecs=[{"version": "v1", "namespace": "two", "name": "twin"}], result="fail"
            ),
            [("v1/Pod/two/twin", "Pass", "Ok")],
        ),
        (
            {**team("good"), "policy": "nobody"},
            [("v1/Pod/default/good", "Fail", "Not found")],
        ),
        (owner(result="pass"), [("v1/Pod/default/good", "Pass", "Ok")]),
        (
            owner(result="pass", patchedResources="patched.yaml"),
            [("v1/Pod/default/good", "Pass", "Ok")],
        ),
        (
            owner(result="fail", patchedResources="patched.yaml"),
            [("v1/Pod/default/good", "Fail", "Want fail, got pass")],
        ),
        (
            owner(result="pass", patchedResources="other.yaml"),
            [("v1/Pod/default/good", "Fail", "Resource diff")],
        ),
        (
            owner(result="pass", patchedResources="gone.yaml"),
            [("v1/Pod/default/good", "Fail", "Resource error")],
        ),
        (owner(result="pass", patchedResources="strange.yaml"), []),
        (
            owner(result="pass", patchedResources="strange.yaml", failOnMissingResources=True),
            [("v1/Pod/default/good", "Fail", "Resource error")],
        ),
        (quota(result="pass", generatedResource="made.yaml"), [("/limits", "Pass", "Ok")]),
        (
            quota(result="pass", generatedResource="patched.yaml"),
            [("/limits", "Fail", "Resource error")],
        ),
    ],
)
def test_rows(capsys, row: dict, expected: list[tuple[str, str, str]]) -> None:
    write_test(row)
    code, found = outcomes(capsys)
    assert found == expected
    assert code == int(any(result == "Fail" for _, result, _ in expected))


def test_a_row_that_names_nobody_speaks_of_all(capsys) -> None:
    write_test(team("nobody"))
    assert len(outcomes(capsys)[1]) == 7


def test_the_table_and_the_summary(capsys) -> None:
    write_test(team("good"), team("bad"))
    code, out, err = test(capsys)
    assert code == 1
    assert "Loading test t ( kyverno-test.yaml ) ..." in out
    assert "  Applying 3 policies to 7 resources with 0 exceptions ..." in out
    assert "│ 2  │ need-team │ team │ v1/Pod/default/bad  │ Fail   │ Want pass, got fail │" in out
    assert "Test Summary: 1 tests passed and 1 tests failed" in out
    assert "Error: 1 tests failed" in err


def test_failures_only(capsys) -> None:
    write_test(team("good"), team("bad"))
    _, out, _ = test(capsys, "--fail-only", "--detailed-results")
    assert "Test Summary: 1 out of 2 tests failed" in out
    assert "Aggregated Failed Test Cases : " in out
    assert "│ 1  │ need-team" in out
    assert "default/good" not in out


@pytest.mark.parametrize(
    ("selector", "count", "code"),
    [
        ("policy=need-*", 2, 1),
        ("policy=other", 0, 0),
        ("resource=good", 1, 0),
        ("rule=team,resource=bad", 1, 1),
        ("nonsense", 2, 1),
    ],
)
def test_selectors(capsys, selector: str, count: int, code: int) -> None:
    write_test(team("good"), team("bad"))
    found_code, found = outcomes(capsys, "-t", selector)
    assert (len(found), found_code) == (count, code)


def test_files_are_found_everywhere_in_order(capsys) -> None:
    for name in ("b", ".kyverno-test", "a"):
        write_test(
            team("good"),
            file=f"{name}/kyverno-test.yaml",
            policies=["../policy.yaml"],
            resources=["../resources.yaml"],
        )
    _, out, _ = test(capsys)
    order = [line.split("(")[1].split("/")[0].strip() for line in out.splitlines() if "( " in line]
    assert order == [".kyverno-test", "a", "b"]
    assert test(capsys, "-f", "other.txt")[0] == 0
    assert test(capsys, "-f", "other.txt", "--require-tests")[0] == 1


@pytest.mark.parametrize("form", ["yaml", "junit", "markdown", "sarif"])
def test_formats(capsys, form: str) -> None:
    write_test(team("good"), team("bad"))
    code, out, _ = test(capsys, "-o", form)
    assert code == 1
    if form == "yaml":
        assert [row["RESULT"] for row in yaml.safe_load(out)] == ["Pass", "Fail"]
    elif form == "junit":
        assert ElementTree.fromstring(out).get("failures") == "1"
    elif form == "sarif":
        assert len(json.loads(out)["runs"][0]["results"]) == 1
    else:
        assert "| 2 | need-team | team | v1/Pod/default/bad | Fail | Want pass, got fail |" in out


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ({"match": {"resource": {"metadata": {"name": "bad"}}}, "assert": {"status": "fail"}}, 0),
        ({"match": {"resource": {"metadata": {"name": "bad"}}}, "assert": {"status": "pass"}}, 1),
        ({"match": {"rule": {"name": "team"}}, "assert": {"status": "pass"}}, 1),
        (
            {"match": {"policy": {"metadata": {"name": "add-owner"}}}, "error": {"status": "fail"}},
            0,
        ),
        (
            {"match": {"policy": {"metadata": {"name": "add-owner"}}}, "error": {"status": "pass"}},
            1,
        ),
    ],
)
def test_checks(capsys, check: dict, code: int) -> None:
    write_test(team("good"), checks=[check])
    assert test(capsys)[0] == code


def test_values_inline_and_by_file(capsys) -> None:
    given = {"policies": [{"name": "need-team", "resources": [{"name": "bad", "values": {}}]}]}
    given["policies"][0]["resources"][0]["values"] = {"request.object.metadata.labels.team": "x"}
    write_test(team("bad"), values=given)
    assert test(capsys)[0] == 0
    head = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Values"}
    Path("values.yaml").write_text(yaml.safe_dump({**head, **given}))
    write_test(team("bad"), variables="values.yaml")
    assert test(capsys)[0] == 0
    Path("values.yaml").write_text(yaml.safe_dump(given))
    assert test(capsys)[0] == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"policies": ["gone.yaml"]}, "gone.yaml"),
        ({"resources": ["gone.yaml"]}, "gone.yaml"),
        ({"variables": "gone.yaml"}, "gone.yaml"),
        ({"userinfo": "gone.yaml"}, "gone.yaml"),
        ({"exceptions": ["gone.yaml"]}, "gone.yaml"),
        ({"exceptions": ["policy.yaml"]}, "not supported"),
        ({"name": "old"}, "deprecated schema"),
        ({"kind": ""}, "deprecated schema"),
        ({"reslts": []}, "found 1 errors after loading tests"),
    ],
)
def test_what_cannot_run(capsys, more: dict, message: str) -> None:
    write_test(team("good"), **more)
    code, out, err = test(capsys)
    assert code == 1
    assert message in out + err


def test_one_broken_test_does_not_stop_the_next(capsys) -> None:
    write_test(team("good"), file="a/kyverno-test.yaml")
    write_test(team("good"))
    code, out, _ = test(capsys)
    assert code == 1
    assert "Test Summary: 1 tests passed" in out


def test_other_families_are_named(capsys) -> None:
    text = "apiVersion: json.kyverno.io/v1alpha1\nkind: ValidatingPolicy\nmetadata: {name: later}\n"
    Path("policy.yaml").write_text(text)
    write_test(team("good"))
    code, _, err = test(capsys)
    assert code == 1
    assert "policy.yaml:1: policies of kind ValidatingPolicy are not supported yet" in err


def test_objects_that_others_cause_to_change(capsys) -> None:
    Path("policy.yaml").write_text("""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: mark}
spec:
  rules:
  - name: mark
    match: {any: [{resources: {kinds: [Namespace]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Secret, name: s, namespace: default}]
      patchStrategicMerge: {metadata: {labels: {marked: "yes"}}}
""")
    Path("secret.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
    Path("marked.yaml").write_text(
        'apiVersion: v1\nkind: Secret\nmetadata: {name: s, labels: {marked: "yes"}}\n'
    )
    row = {"policy": "mark", "rule": "mark", "kind": "Secret", "resources": ["s"], "result": "pass"}
    write_test({**row, "patchedResources": "marked.yaml"}, targetResources=["secret.yaml"])
    assert outcomes(capsys) == (0, [("v1/Secret/default/s", "Pass", "Ok")])
    write_test({**row, "patchedResources": "secret.yaml"}, targetResources=["secret.yaml"])
    assert outcomes(capsys)[0] == 1


def test_objects_of_a_made_up_cluster(capsys) -> None:
    Path("policy.yaml").write_text("""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod], names: [good]}}]}
    context: [{name: teams, configMap: {name: teams, namespace: default}}]
    validate:
      message: unknown team
      pattern: {metadata: {labels: {team: "{{ teams.data.known }}"}}}
""")
    cluster = {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "ClusterResource",
        "spec": {
            "resources": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "teams", "namespace": "default"},
                    "data": {"known": "a"},
                }
            ]
        },
    }
    Path("cluster.yaml").write_text(yaml.safe_dump(cluster))
    write_test(team("good"), clusterResources=["cluster.yaml"])
    assert test(capsys)[0] == 0
    write_test(team("good", result="error"))
    assert test(capsys)[0] == 0
