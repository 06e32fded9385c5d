"""The pages of checks: up to date, and their examples say what they should."""

import sys
from pathlib import Path

import pytest

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.lint.catalog import CHECKS
from lictor.lint.run import lint_texts
from lictor.lint.selection import LintSelection

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
from make_rules import FOLDER, build_pages, complete

from lictor.cli.rule import read_rule_examples as read_examples

CODES = {check.code for check in CHECKS.values()}


def find_codes(part, code):
    text = complete(part)
    chosen = LintSelection(("ALL", code))
    report = lint_texts([("example.yaml", text.encode())], FILE_RECORDS, selection=chosen)
    return {CHECKS[finding.check].code for finding in report.findings}


@pytest.mark.parametrize(("code", "example"), read_examples().items(), ids=list(read_examples()))
def test_examples_say_what_they_should(code, example):
    assert code in CODES
    assert code in find_codes(example["wrong"], code)
    if "right" in example:
        assert find_codes(example["right"], code) == set()


def test_pages_are_up_to_date():
    """`python scripts/make_rules.py` writes them."""
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert found == build_pages()
