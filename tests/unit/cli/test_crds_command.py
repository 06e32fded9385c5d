"""`crds` on the command line."""

import json

import pytest
import yaml

from lictor.cli import exit_codes


def test_documents_are_yaml_that_kubectl_reads(capsys):
    assert exit_codes.run(["crds", "--group", "wgpolicyk8s.io,reports.kyverno.io"]) == 0
    documents = list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader))
    assert [each["metadata"]["name"] for each in documents] == [
        "ephemeralreports.reports.kyverno.io",
        "clusterephemeralreports.reports.kyverno.io",
        "policyreports.wgpolicyk8s.io",
        "clusterpolicyreports.wgpolicyk8s.io",
    ]


def test_json_is_one_list(capsys):
    assert exit_codes.run(["crds", "--format", "json", "--openreports"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["kind"] == "List"
    assert len(whole["items"]) == 29


WRONG = [
    (["crds", "--group", "kyverno"], "unknown group kyverno"),
    (["crds", "--format", "xml"], "xml"),
    (["crds", "all"], "unknown command"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_call(capsys, words, said):
    assert exit_codes.run(words) == 2
    assert said in capsys.readouterr().err
