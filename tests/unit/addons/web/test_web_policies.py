"""The page of policies: mode and readiness of each, and those without results."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from web_reports import entry, report, see_all, see_namespaces

from lictor.addons.web.pages.page import PageRequest, WebPage
from lictor.addons.web.pages.render import render_page
from lictor.addons.web.records import Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.addons.web.sources.report_files import read_report_files
from lictor.core.raw import JsonObject

MATCH = {"any": [{"resources": {"kinds": ["Pod"]}}]}
CHECK = {"message": "no", "pattern": {"metadata": {"labels": {"app": "?*"}}}}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def classic(name: str, namespace: str = "", status: object = None, **check: object) -> JsonObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    rule = {"name": "r", "match": MATCH, "validate": {**CHECK, **check}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": metadata,
        "spec": {"rules": [rule]},
        **({"status": status} if status is not None else {}),
    }


def validating(name: str, status: object = None, **spec: object) -> JsonObject:
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {"validations": [{"expression": "true"}], **spec},
        **({"status": status} if status is not None else {}),
    }


def mutating(name: str) -> JsonObject:
    rule = {"name": "r", "match": MATCH, "mutate": {"patchStrategicMerge": {"spec": {}}}}
    return {**classic(name), "spec": {"rules": [rule]}}


def build_state(*policies: JsonObject) -> PageData:
    """One cluster with results of the policy `labels` in the namespace `shop`."""
    data = PageData(("here",))
    data.results.put_report("here", report("web", "shop", entry("labels", "fail")))
    for policy in policies:
        data.put_document("here", policy)
    return data


def show(state: PageData, address: str, viewer: Viewer | None = None) -> WebPage:
    parts = urlsplit(address)
    request = PageRequest(path=parts.path, query=tuple(parse_qsl(parts.query)))
    return asyncio.run(render_page(request, state, viewer or see_all(*state.list_clusters())))


def list_rows(page: WebPage) -> list[str]:
    """The texts of the first cells."""
    cells = re.findall(r'<th scope="row">(.*?)</th>', page.body)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in cells]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (classic("labels", failureAction="Enforce", status=READY), "labels Enforce Ready"),
        (classic("labels", status={"conditions": [{"type": "Ready", "status": "False"}]}), "labels Audit Not ready"),
        (classic("labels"), "labels Audit"),
        (validating("labels", {"conditionStatus": {"ready": True}}), "labels Deny Ready"),
        (validating("labels", {"conditionStatus": {"ready": False, "conditions": [{"type": "WebhookConfigured", "status": "True"}]}}), "labels Deny Not ready"),
        (validating("labels", validationActions=["Audit", "Warn"]), "labels Audit, Warn"),
        (mutating("labels"), "labels"),
        (classic("labels", status="what"), "labels Audit"),
        (classic("labels", status={"conditions": [7]}), "labels Audit"),
        ({**classic("labels"), "spec": {"rules": 7}}, "labels"),
        (classic("other", failureAction="Enforce"), "labels"),
    ],
)  # fmt: skip
def test_mode_and_readiness_are_shown(policy: JsonObject, expected: str) -> None:
    assert expected in list_rows(show(build_state(policy), "/policies"))


def test_a_change_of_the_status_is_shown() -> None:
    state = build_state(classic("labels", status={"conditions": [{"type": "Ready", "status": "False"}]}))  # fmt: skip
    state.put_document("here", classic("labels", status=READY))
    assert "labels Audit Ready" in list_rows(show(state, "/policies"))


def test_the_state_of_a_policy_is_for_those_who_see_its_namespace() -> None:
    state = build_state(classic("labels", "bank", READY))
    state.results.put_report("here", report("db", "shop", entry("bank/labels", "fail")))
    assert "bank/labels Audit Ready" in list_rows(show(state, "/policies"))
    assert "bank/labels" in list_rows(show(state, "/policies", see_namespaces("shop")))


def test_policies_without_results_are_listed_last() -> None:
    state = build_state(classic("a-quiet", status=READY), classic("labels"), classic("own", "shop"))
    page = show(state, "/policies")
    assert list_rows(page) == ["labels Audit", "a-quiet Audit Ready", "shop/own Audit"]
    assert "3 policies, 1 with failures, errors or warnings" in page.body
    assert list_rows(show(state, "/policies?sort=name"))[0] == "a-quiet Audit Ready"
    state.drop_document("here", classic("a-quiet"))
    assert list_rows(show(state, "/policies")) == ["labels Audit", "shop/own Audit"]


def test_policies_without_results_are_for_those_who_may_see_them() -> None:
    state = build_state(classic("own", "shop"), classic("theirs", "bank"), classic("all"))
    seen = [
        list_rows(show(state, "/policies", viewer))
        for viewer in (see_namespaces("shop"), see_namespaces("bank"), see_namespaces())
    ]
    assert seen == [
        ["labels", "all Audit", "shop/own Audit"],
        ["all Audit", "bank/theirs Audit"],
        [],
    ]
    assert show(state, "/policy?policy=bank/theirs", see_namespaces("shop")).status == 404
    assert show(state, "/policy?policy=bank/theirs", see_namespaces("bank")).status == 200


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=QUIET", ["quiet Audit"]),
        ("status=fail", ["labels"]),
        ("namespace=shop", ["labels"]),
        ("cluster=here", ["labels", "quiet Audit"]),
        ("cluster=there", []),
    ],
)
def test_what_is_chosen_holds_for_policies_without_results(query: str, expected: list[str]) -> None:
    assert list_rows(show(build_state(classic("quiet")), f"/policies?{query}")) == expected


def test_a_policy_without_results_has_a_page() -> None:
    state = build_state(classic("quiet"))
    link = re.search(r'href="(/policy\?[^"]*quiet[^"]*)"', show(state, "/policies").body)
    assert link is not None
    page = show(state, unescape(link[1]))
    assert page.status == 200
    assert "There are no results." in page.body
    assert "validate" in page.body
    assert show(state, "/policy?policy=gone").status == 404


def test_a_policy_in_another_file_is_listed_once(tmp_path: Path) -> None:
    for name, document in (
        ("reports", report("web", "shop", entry("labels", "fail"))),
        ("policies", {"apiVersion": "v1", "kind": "List", "items": [classic("labels"), classic("quiet")]}),
    ):  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    state = read_report_files([str(tmp_path)])
    rows = [row.split(" ", 1)[1] for row in list_rows(show(state, "/policies"))]
    assert rows == ["labels Audit", "quiet Audit"]
