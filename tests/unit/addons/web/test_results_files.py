"""Reports in files: what is read, what stands beside them, and what is refused."""

import asyncio
import json
import time
import tracemalloc
from pathlib import Path

import pytest
from web_reports import entry, report, see_all, see_namespaces

from lictor.addons.web.policies import PolicyTexts, find_kind, show_policy
from lictor.addons.web.records import ExportFormat, ResultFilter
from lictor.addons.web.results_export import export_results
from lictor.addons.web.sources.page_data import PageData
from lictor.addons.web.sources.report_files import read_report_files
from lictor.core.errors import LoadError
from lictor.core.families.kind_facts import Role
from lictor.core.report.yaml_text import render_yaml

ALL = ResultFilter()
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labels, annotations: {policies.kyverno.io/title: Labels}}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: needs a team
      pattern: {metadata: {labels: {team: "?*"}}}
  - name: owner
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: needs an owner, pattern: {metadata: {labels: {owner: "?*"}}}}
---
apiVersion: kyverno.io/v2
kind: PolicyException
metadata:
  name: old
  namespace: shop
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {cleanup.kyverno.io/ttl: 24h}
spec:
  match: {any: [{resources: {kinds: [Pod], names: [old-*]}}]}
  exceptions: [{policyName: labels, ruleNames: [team, autogen-*]}]
---
apiVersion: policies.kyverno.io/v1beta1
kind: PolicyException
metadata: {name: cel, namespace: bank}
spec: {policyRefs: [{name: images, kind: ValidatingPolicy}]}
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: local, namespace: bank}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no, pattern: {metadata: {labels: {team: "?*"}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: quiet, labels: {tier: gold}}
"""


def write(folder: Path, name: str, *documents: object) -> str:
    path = folder / name
    path.write_text("---\n".join(render_yaml(document) for document in documents))
    return str(path)


def read_all(folder: Path) -> tuple[PageData, str]:
    skipped = entry("labels", "skip", properties={"exceptions": "new,old"})
    skipped_otherwise = entry("ports", "skip", properties={"exceptions": "old"})
    skipped_by_other = entry("labels", "skip", properties={"exceptions": "older"})
    results = (skipped, skipped_otherwise, skipped_by_other)
    path = write(folder, "reports.yaml", report("web", "shop", *results))
    with Path(path).open("a") as file:
        file.write(f"---{POLICY}")
    return read_report_files([path]), path


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    first = write(tmp_path, "a.yaml", report("x", "n", entry("p", "fail")), report("y", "n"))
    listed = {"apiVersion": "v1", "kind": "List", "items": [report("z", "n", entry("p", "pass"))]}
    second = tmp_path / "sub" / "b.json"
    second.parent.mkdir()
    second.write_text(json.dumps(listed))
    state: PageData = read_report_files([first, str(tmp_path)])
    assert list(state.list_clusters()) == [first, str(second)]
    viewer = see_all(*state.list_clusters())
    rows = state.results.select(ALL, viewer).rows
    assert [(row.cluster, row.name, row.status) for row in rows] == [
        (first, "x", "fail"),
        (str(second), "z", "pass"),
    ]
    assert state.is_ready()
    (point,) = state.list_totals(viewer)
    assert (point.counts["fail"], point.counts["pass"]) == (1, 1)


def test_reports_of_the_same_name_are_several(tmp_path: Path) -> None:
    merged = {"apiVersion": "openreports.io/v1alpha1", "kind": "ClusterReport"}
    documents = [{**merged, "metadata": {"name": "merged"}, "results": [entry("p", "fail")]}] * 2
    path = write(tmp_path, "runs.yaml", *documents, {**merged, "results": [entry("q", "fail")]})
    rows = read_report_files([path]).results.select(ALL, see_all(path)).rows
    assert sorted(row.report.partition("/")[2] for row in rows) == [
        "merged",
        "merged (2)",
        "report",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", "no PolicyReport and no Report"),
        ("", "no PolicyReport and no Report"),
        ("a: [1\n", r"reports\.yaml:2"),
        ("just text", "no PolicyReport and no Report"),
    ],
)
def test_what_holds_no_report_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "reports.yaml"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        read_report_files([str(path)])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nothing-here"):
        read_report_files([str(tmp_path / "nothing-here.yaml")])


def test_a_policy_is_shown_with_the_lines_of_its_rules(tmp_path: Path) -> None:
    state, path = read_all(tmp_path)
    policy = state.find_policy(path, "labels", see_all(path))
    assert policy is not None
    assert (policy.kind, policy.family, policy.name) == ("ClusterPolicy", "classic", "labels")
    assert policy.annotations == {"policies.kyverno.io/title": "Labels"}
    lines = policy.text.splitlines()
    first, last = policy.rule_lines["team"]
    rule = "\n".join(lines[first - 1 : last])
    assert "name: team" in rule
    assert "needs a team" in rule
    assert "owner" not in rule
    assert policy.rule_lines["autogen-cronjob-team"] == (first, last)
    first, last = policy.rule_lines["owner"]
    assert last == len(lines)
    assert "team" not in "\n".join(lines[first - 1 : last])


def test_a_policy_of_the_cluster_is_for_all_who_see_something(tmp_path: Path) -> None:
    state, path = read_all(tmp_path)
    assert state.find_policy(path, "labels", see_namespaces("quiet", cluster=path)) is not None
    assert state.find_policy(path, "labels", see_namespaces(cluster=path)) is None
    assert state.find_policy(path, "labels", see_all("elsewhere")) is None
    assert state.find_policy(path, "other", see_all(path)) is None


def test_a_policy_of_a_namespace_is_for_those_who_see_it(tmp_path: Path) -> None:
    state, path = read_all(tmp_path)
    seeing = see_namespaces("bank", cluster=path)
    assert state.find_policy(path, "bank/local", seeing) is not None
    assert state.find_policy(path, "bank/local", see_namespaces("shop", cluster=path)) is None
    assert state.find_policy(path, "local", seeing) is None


def test_exceptions_say_what_they_hide_and_when_they_end(tmp_path: Path) -> None:
    state, path = read_all(tmp_path)
    cel, old = sorted(state.list_exceptions(see_all(path)), key=lambda each: each.name)
    assert old.policies == (("labels", ("team", "autogen-*")),)
    assert old.ends_at == 1767312000
    # The others are skipped by one of the same name from another policy, and by another one.
    assert old.hidden == 1
    assert "policyName: labels" in old.text
    assert (cel.policies, cel.ends_at, cel.hidden) == ((("images", ()),), 0, 0)
    seen = state.list_exceptions(see_namespaces("bank", cluster=path))
    assert [each.name for each in seen] == ["cel"]


def test_a_report_in_a_file_is_read_as_a_whole(tmp_path: Path) -> None:
    """`apply -p` writes one report, however many results there are."""
    file = tmp_path / "all.json"
    file.write_text(json.dumps(report("web", "shop", *[entry("a", "fail")] * 50_001)))
    state = read_report_files([str(file)])
    assert (len(state.results), state.list_problems()) == (50_001, ())


def test_a_page_says_how_many_results_it_does_not_show() -> None:
    state = PageData(("here",))
    many = report("web", "shop", *[entry("a", "fail")] * 1_200)
    state.results.put_report("here", many, limit=200)
    assert state.list_problems()[0].startswith("1,000 of 1,200 results are not shown")


def test_exceptions_of_strangers_have_bounds(tmp_path: Path) -> None:
    excepted = {"exceptions": [{"policyName": "labels", "ruleNames": ["*"]}]}
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    named = "," * 30 + "late"
    documents = [
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": name, "namespace": "shop", "annotations": {"note": note}},
            "spec": {**excepted, "match": match},
        }
        for name, note in (("long", "x" * 40_000), ("late", ""))
    ]
    entries = [entry("labels", "skip", properties={"exceptions": e}) for e in (named, "late,long")]
    file = tmp_path / "all.json"
    texts = map(json.dumps, [*documents, report("web", "shop", *entries)])
    file.write_text("\n---\n".join(texts), encoding="utf-8")
    state = read_report_files([str(file)])
    late, long = state.list_exceptions(see_all(*state.list_clusters()))
    assert (late.name, late.hidden) == ("late", 1)
    assert len(long.text) < 200


def test_rules_of_long_policies_are_found_at_once_or_not_at_all(tmp_path: Path) -> None:
    # Finding each for itself took minutes, in which nobody else was answered.
    for number, is_marked in ((400, True), (4000, False)):
        rules = [{"name": f"r{n}", "validate": {"message": "m" * 50}} for n in range(number)]
        policy = {
            "apiVersion": "kyverno.io/v1",
            "kind": "Policy",
            "metadata": {"name": "long", "namespace": "shop"},
            "spec": {"rules": rules},
        }
        texts = PolicyTexts()
        kind = find_kind(policy, Role.POLICY)
        assert kind is not None
        texts.put("here", kind, policy)
        began = time.process_time()
        text = texts.find("here", "shop/long")
        assert text is not None
        found = show_policy("here", text)
        assert time.process_time() - began < 2
        lines = found.rule_lines["r399"]
        assert found.text.splitlines()[lines[0] - 1].strip() == (
            "- name: r399" if is_marked else "apiVersion: kyverno.io/v1"
        )


def test_namespaces_are_those_that_are_there_and_those_of_reports(tmp_path: Path) -> None:
    state, path = read_all(tmp_path)
    assert state.list_namespaces(path, see_all(path)) == ["quiet", "shop"]
    assert state.list_namespaces(path, see_namespaces("shop", cluster=path)) == ["shop"]


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    entries = [entry(f"p{number % 9}", "fail", message="m" * 80) for number in range(5000)]
    whole = report("all", "shop", *entries)
    listed = {"apiVersion": "v1", "kind": "List", "items": [report(f"r{number}", "shop", *entries[:50]) for number in range(100)]}  # fmt: skip
    for number, document in enumerate((whole, listed)):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(document))
        tracemalloc.start()
        state = read_report_files([str(file)])
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert state.results.select(ResultFilter(), see_all(str(file))).total == 5000
        # All of it as objects alone needs more.
        assert most < 4 * file.stat().st_size, most / file.stat().st_size


def test_json_that_is_broken_in_a_part_is_refused_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    text = json.dumps(report("r", "shop", entry("p", "fail"), entry("q", "fail")), indent=1)
    file.write_text(text.replace('"q"', '"\\ud8 q"'))
    with pytest.raises(LoadError, match=r"broken\.json:\d+"):
        read_report_files([str(file)])


def test_half_a_character_breaks_nothing(tmp_path: Path) -> None:
    half, whole = "a\ud800b", "a\ufffdb"
    state = read_report_files([write(tmp_path, "x\udcff.json", report("r", "shop", entry("p", "pass")))])  # fmt: skip
    (file,) = state.list_clusters()
    viewer = see_all(file)
    said = entry("q", "fail", message=half, category=half, properties={half: half})
    state.results.put_report(file, report(half, half, said))
    head = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy"}
    metadata = {"name": "q", "annotations": {"a": half}}
    assert state.put_document(file, {**head, "metadata": metadata, "spec": {"rules": []}})
    row = state.results.select(ResultFilter(), viewer).rows[0]
    assert row.message == row.category == row.namespace == whole
    for form in ExportFormat:
        rows = state.results.export(ResultFilter(), viewer)
        assert whole in b"".join(export_results(rows, form)).decode()
    shown = state.find_policy(file, "q", viewer)
    assert shown is not None
    assert shown.text.encode()


def test_where_a_resource_of_a_file_breaks_a_rule_is_told(tmp_path: Path) -> None:
    pattern = {"spec": {"image": "ours/*"}}
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    rule = {"name": "q-rule", "match": match, "validate": {"message": "no", "pattern": pattern}}
    head = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "q"}}
    write(tmp_path, "policy.yaml", {**head, "spec": {"rules": [rule]}})
    metadata = {"name": "web", "namespace": "shop"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"image": "other/a", "n": 10**30},
    }
    write(tmp_path, "pods.yaml", pod)
    file = write(tmp_path, "reports.yaml", report("web", "shop", entry("q", "fail")))
    state = read_report_files([str(tmp_path)])
    viewer = see_all(*state.list_clusters())
    (row,) = state.results.select(ResultFilter(), viewer).rows
    assert row.cluster == file
    found = asyncio.run(state.find_failure(row, viewer))
    assert found is not None
    assert (found.path, found.expected, found.found) == ("/spec/image/", "ours/*", "other/a")
