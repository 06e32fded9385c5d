"""The page of policies: mode and readiness of each."""

import asyncio
import re
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest
from web_reports import entry, report, see_all, see_namespaces

from lictor.addons.web.pages.page import PageRequest, WebPage
from lictor.addons.web.pages.render import render_page
from lictor.addons.web.records import Viewer
from lictor.addons.web.sources.page_data import PageData
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
