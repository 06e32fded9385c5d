"""The chart is what `lictor install` says: its files are made from the same manifests."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.install.values import default_values, list_values

GOLDEN = Path(__file__).parent / "chart_golden.yaml"
ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))

import make_chart  # noqa: E402
import make_chart_page  # noqa: E402


@pytest.fixture(scope="module")
def made():
    return make_chart.list_files()


def test_the_files_of_the_chart_are_up_to_date(made):
    wrong = make_chart.find_differences(made)
    assert not wrong, "run: python scripts/make_chart.py"


def test_values_have_every_value_with_its_words(made):
    assert yaml.safe_load(made["values.yaml"]) == default_values()
    for row in list_values():
        assert f"# {row.words}" in made["values.yaml"]


def test_the_schema_knows_every_value_and_no_other(made):
    schema = json.loads(made["values.schema.json"])
    for row in list_values():
        place = schema
        for name in row.path.split("."):
            place = place["properties"][name]
        assert place["description"] == row.words
    assert schema["additionalProperties"] is False


def test_hooks_are_never_printed_for_kubectl(made):
    """`helm template | kubectl apply` would take the rights of the webhook server away."""
    text = made["templates/hooks/remove-webhooks.yaml"]
    assert text.splitlines()[1].startswith("{{- if and .Values.webhooksCleanup.enabled (lookup")
    assert text.rstrip().endswith("{{- end }}")


def test_no_template_opens_what_it_does_not_close(made):
    for name, text in made.items():
        if name.startswith("templates/"):
            opened = sum(text.count(f"{{{{- {word} ") for word in ("if", "with", "define"))
            assert opened == text.count("{{- end "), name


# --- what helm printed of it, kept so that nothing changes unseen


def test_install_makes_what_helm_printed():
    """tests/cluster/test_helm.py compares the file with real helm."""
    text = GOLDEN.read_text(encoding="utf-8").replace("VERSION", "1.2.3")
    helm = text.replace("managed-by: Helm", "managed-by: lictor")
    printed = {name_object(each): each for each in yaml.load_all(helm, Loader=yaml.CSafeLoader)}
    settings = printed["ConfigMap", "lictor"]["metadata"]
    assert settings.pop("annotations") == {"helm.sh/resource-policy": "keep"}
    _, *made = build_manifests(Installation(version="1.2.3", skip_crds=True))
    assert {name_object(each): each for each in made} == printed


def name_object(body):
    return body["kind"], body["metadata"]["name"]


# --- the page about it


def test_the_page_is_up_to_date():
    text = make_chart_page.PAGE.read_text(encoding="utf-8")
    tables = text.partition(make_chart_page.MARKER)[2]
    assert tables.strip() == make_chart_page.print_tables().strip(), (
        "run: python scripts/make_chart_page.py"
    )


def test_every_value_of_kyvernos_chart_has_its_fate():
    fates = {each.name: each for each in make_chart_page.list_fates()}
    assert len(fates) == len(make_chart_page.list_fates()) == 741
    assert all(each.words for each in fates.values() if each.fate != "same")
    for each in fates.values():
        if each.fate == "renamed":
            named = [word.split(".")[0] for word in each.words.partition(": ")[0].split("`")[1::2]]
            known = {*default_values(), "extraArgs"}
            assert set(named) <= known, each.name
