"""Keys in their usual order: only where it is asked for, and comments stay with their keys."""

import pytest

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.load.policies import load_documents
from lictor.lint.documents import read_file
from lictor.lint.fixes import fix_text
from lictor.lint.run import lint_texts
from lictor.lint.selection import LintSelection

ORDER = LintSelection(("LIC114",))


def find(text, selection=ORDER):
    return lint_texts([("a.yaml", text.encode())], FILE_RECORDS, selection=selection).findings


def fix(text):
    content = text.encode()
    for _ in range(6):
        report = lint_texts([("a.yaml", content)], FILE_RECORDS, selection=ORDER)
        content = fix_text(read_file("a.yaml", content), report.findings)
    return content.decode()


RULE = """\
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: label it
      pattern: {metadata: {name: "?*"}}
"""
HEAD = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: labels\n"
MOVES = {
    "the top": (
        "kind: ClusterPolicy # ours\napiVersion: kyverno.io/v1\nmetadata:\n  name: labels\n" + RULE,
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy # ours\nmetadata:\n  name: labels\n" + RULE,
    ),
    "the top, with a header": (
        "# About it all.\n\n" + RULE + "# What it is.\n" + HEAD,
        "# About it all.\n\n# What it is.\n" + HEAD + RULE,
    ),
    "without a line end": (
        (RULE + HEAD).removesuffix("\n"),
        (HEAD + RULE).removesuffix("\n"),
    ),
    "comments above and behind": (
        HEAD.removesuffix("  name: labels\n")
        + "  # by team\n  labels: # two\n    a: b\n    # c: d\n  # its name\n  name: labels # short\n"
        + RULE,
        HEAD.removesuffix("  name: labels\n")
        + "  # its name\n  name: labels # short\n  # by team\n  labels: # two\n    a: b\n    # c: d\n"
        + RULE,
    ),
    "an item of a list": (
        HEAD
        + "spec:\n  rules:\n  # first\n  - validate:\n      pattern:\n        metadata:\n          name: a\n"
        "      message: |\n        two\n        lines\n    match: {any: [{resources: {kinds: [Pod]}}]}\n    name: team\n",
        HEAD
        + "spec:\n  rules:\n  # first\n  - name: team\n    match: {any: [{resources: {kinds: [Pod]}}]}\n"
        "    validate:\n      message: |\n        two\n        lines\n      pattern:\n        metadata:\n          name: a\n",
    ),
    "on one line": (
        HEAD.replace("metadata:\n  name: labels", "metadata: {namespace: b, x: 1, name: labels}")
        + RULE,
        HEAD.replace("metadata:\n  name: labels", "metadata: {name: labels, x: 1, namespace: b}")
        + RULE,
    ),
    "conditions": (
        HEAD
        + RULE
        + "    preconditions:\n      all:\n      - value: 1\n        key: 1\n        operator: Equals\n",
        HEAD
        + RULE.partition("    validate:")[0]
        + "    preconditions:\n      all:\n      - key: 1\n        operator: Equals\n        value: 1\n    validate:"
        + RULE.partition("    validate:")[2],
    ),
    "a comment behind a dash stays": (
        HEAD + "spec:\n  rules:\n  - match: {}\n    # the name\n    name: team\n",
        HEAD + "spec:\n  rules:\n  - match: {}\n    # the name\n    name: team\n",
    ),
    "blank lines that belong to a text stay": (
        HEAD + "spec:\n  rules:\n  - match: {}\n    x: |+\n      a\n\n    name: team\n",
        HEAD + "spec:\n  rules:\n  - match: {}\n    x: |+\n      a\n\n    name: team\n",
    ),
    "aliases stay": (
        "kind: ClusterPolicy\napiVersion: kyverno.io/v1\nmetadata: &a {name: b}\nspec: {x: *a}\n",
        "kind: ClusterPolicy\napiVersion: kyverno.io/v1\nmetadata: &a {name: b}\nspec: {x: *a}\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), MOVES.values(), ids=MOVES)
def test_sorted(before, after):
    assert fix(before) == after
    assert fix(after) == after


@pytest.mark.parametrize("before", [before for before, _ in MOVES.values()], ids=MOVES)
def test_documents_stay_the_same(before):
    bodies = [
        each.body
        for text in (before, fix(before))
        for each in read_file("", text.encode()).documents
    ]
    assert bodies[0] == bodies[1]


def test_a_finding_says_where_and_what():
    text = HEAD + RULE.replace("  - name: team\n", "  - exclude: {}\n    name: team\n")
    (finding,) = find(text)
    assert (finding.location.line, finding.location.column) == (8, 5)
    assert (
        finding.message
        == '"name" comes before "exclude": the usual order is name, match, exclude, validate'
    )


@pytest.mark.parametrize("selected", ["ALL", "LIC", "LIC1", "LIC11"])
def test_it_must_be_asked_for(selected):
    assert "unsorted-keys" not in {f.check for f in find(RULE + HEAD, LintSelection((selected,)))}


@pytest.mark.parametrize("selected", ["LIC114", "lic114", "unsorted-keys"])
def test_it_is_named_in_full(selected):
    assert find(RULE + HEAD, LintSelection((selected,)))


def test_what_has_no_usual_place_may_stand_anywhere():
    assert not find(HEAD.replace("kind:", "data: {b: 1, a: 2}\nkind:") + RULE)
    assert load_documents((HEAD + RULE).encode(), "a.yaml").policies
