"""JSON, YAML, JUnit and SARIF of outcomes and verdicts: valid, and with the same facts."""

import json
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

from lictor.core.model.finding import Location
from lictor.core.model.result import Failure, Status, Verdict
from lictor.core.report.outcome_formats import (
    render_junit,
    render_outcomes_json,
    render_outcomes_yaml,
)
from lictor.core.report.outcomes import TestOutcome, list_outcomes
from lictor.core.report.sarif import render_sarif, render_test_sarif

ROWS = [
    TestOutcome(1, "a", "r1", "v1/Pod/n/x", Status.PASS, "Ok", "fine"),
    TestOutcome(
        2, "b", 'r"2', "v1/Pod/n/<y>", Status.FAIL, "Want pass, got fail", "no ]]> \x01", ok=False
    ),
    TestOutcome(
        3, "a", "r3", "v1/Pod/n/z", Status.SKIP, "Invalid Policy", source="t/kyverno-test.yaml"
    ),
]

# The parts of the SARIF 2.1.0 schema that readers insist on.
SARIF = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "shortDescription", "help"],
                                            "properties": {
                                                "shortDescription": {"$ref": "#/$defs/text"},
                                                "help": {"$ref": "#/$defs/text"},
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
                },
            },
        },
    },
    "$defs": {
        "text": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string", "minLength": 1}},
        },
        "result": {
            "type": "object",
            "required": ["ruleId", "ruleIndex", "message", "level", "locations"],
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "kind": {"const": "fail"},
                "message": {"$ref": "#/$defs/text"},
                "locations": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["logicalLocations"],
                        "properties": {
                            "physicalLocation": {
                                "type": "object",
                                "required": ["artifactLocation"],
                                "properties": {
                                    "artifactLocation": {
                                        "type": "object",
                                        "required": ["uri"],
                                        "properties": {
                                            "uri": {"type": "string", "pattern": "^[^ ]+$"}
                                        },
                                    },
                                    "region": {
                                        "type": "object",
                                        "properties": {
                                            "startLine": {"type": "integer", "minimum": 1}
                                        },
                                    },
                                },
                            }
                        },
                    },
                },
            },
        },
    },
}


@pytest.mark.parametrize(
    ("render", "read"), [(render_outcomes_json, json.loads), (render_outcomes_yaml, yaml.safe_load)]
)
@pytest.mark.parametrize("detailed", [False, True])
def test_lists(render, read, detailed):
    first = {
        "ID": 1,
        "POLICY": "a",
        "RULE": "r1",
        "RESOURCE": "v1/Pod/n/x",
        "RESULT": "Pass",
        "REASON": "Ok",
    }
    if detailed:
        first["Message"] = "fine"
    rows = read(render(ROWS, detailed=detailed))
    assert rows[0] == first
    assert len(rows) == 3
    assert read(render([])) == []


@pytest.mark.parametrize("detailed", [False, True])
def test_junit(detailed):
    root = ElementTree.fromstring(render_junit(ROWS, detailed=detailed))
    assert root.attrib == {"tests": "3", "failures": "1"}
    assert [suite.attrib for suite in root] == [
        {"name": "a", "tests": "2", "failures": "0"},
        {"name": "b", "tests": "1", "failures": "1"},
    ]
    case = root.find("./testsuite[@name='b']/testcase")
    assert case.attrib == {"classname": 'r"2', "name": "v1/Pod/n/<y>"}
    failure = case.find("failure")
    assert failure.get("message") == "Want pass, got fail"
    assert ("Message: no ]]> �" in failure.text) is detailed
    assert root.find("./testsuite[@name='a']/testcase/system-out").text.startswith(
        "\n    Reason: Ok\n"
    )
    assert len(root.findall(".//skipped")) == 1


def test_junit_of_nothing():
    assert ElementTree.fromstring(render_junit([])).get("tests") == "0"


def test_junit_of_verdicts(made):
    root = ElementTree.fromstring(render_junit(list_outcomes(made.verdicts), detailed=True))
    assert root.attrib == {"tests": "7", "failures": "4"}
    assert root.find(".//failure").get("message") == "label team: wanted # now"


def test_sarif_of_verdicts(made):
    log = json.loads(
        render_sarif(
            made.verdicts, locate=lambda _: Location("./a b/pods.yaml", 12), version="1.2.3"
        )
    )
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("lictor", "1.2.3")
    assert [rule["id"] for rule in driver["rules"]] == [
        "require-team/team",
        "require-team/lines",
        "shop/local/here",
        "hint/hint",
        "require-team/broken",
    ]
    assert driver["rules"][0]["help"]["text"] == "Someone must answer for it."
    first = run["results"][0]
    assert first["level"] == "warning"
    assert first["message"]["text"] == (
        'label team: wanted # now\nat /metadata/labels/team: expected "?*", found nothing'
    )
    location = first["locations"][0]
    assert (
        location["logicalLocations"][0]["fullyQualifiedName"] == "shop/Pod/bad/metadata/labels/team"
    )
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/pods.yaml"},
        "region": {"startLine": 12, "startColumn": 1},
    }
    assert [result["level"] for result in run["results"]] == [
        "warning",
        "warning",
        "error",
        "warning",
        "error",
    ]
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_of_tests_and_of_nothing():
    log = json.loads(render_test_sarif(ROWS))
    jsonschema.validate(log, SARIF)
    (result,) = log["runs"][0]["results"]
    assert result["message"]["text"].startswith("Want pass, got fail: no ]]>")
    jsonschema.validate(json.loads(render_sarif([])), SARIF)


def test_sarif_hides_secrets(made):
    broken = made.result(status=Status.FAIL, failure=Failure("/data/key", "?*", "c2VjcmV0"))
    text = render_sarif([Verdict(made.request(kind="Secret"), (broken,))])
    assert "c2VjcmV0" not in text
    assert "(hidden)" in text
