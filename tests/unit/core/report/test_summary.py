"""The words of `apply`: who failed, where and why, and how much it adds up to."""

import pytest

from lictor.core.model.result import Failure, RuleType, Status, Verdict
from lictor.core.report.summary import (
    Counts,
    count_verdicts,
    render_counts,
    render_failure,
    render_failures,
)


@pytest.mark.parametrize(
    ("audit_warn", "counts"),
    [(False, Counts(1, 3, 1, 1, 1)), (True, Counts(1, 1, 3, 1, 1))],
)
def test_counts(made, audit_warn, counts):
    assert count_verdicts(made.verdicts, audit_warn=audit_warn) == counts


def test_line():
    assert render_counts(Counts(1, 2) + Counts(3, 4, 5, 6, 7)) == (
        "pass: 4, fail: 6, warn: 5, error: 6, skip: 7 "
    )


def test_failures(made):
    good, bad = made.verdicts
    assert render_failures(good) == ""
    assert render_failures(bad) == (
        "policy require-team -> resource shop/Pod/bad failed:\n"
        "1 - team label team: wanted # now\n"
        '    at /metadata/labels/team: expected "?*", found nothing\n'
        "2 - lines one\ntwo\n\n"
        "policy local -> resource shop/Pod/bad failed:\n"
        '1 - here <no> & "quotes"\n'
        "policy hint -> resource shop/Pod/bad failed:\n"
        "1 - hint better not\n"
    )


def test_audit_warning(made):
    failed = made.result(status=Status.FAIL)
    text = render_failures(Verdict(made.request(), (failed,)), audit_warn=True)
    assert text == (
        "policy require-team -> resource shop/Pod/web failed as audit warning:\n"
        "1 - team validation failed\n"
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status.PASS, ""),
        (Status.SKIP, "\nskipped mutate policy require-team -> resource shop/Pod/web\n"),
        (
            Status.ERROR,
            "\nerror while applying mutate policy require-team -> resource shop/Pod/web \nerror:  oh\n",
        ),
    ],
)
def test_mutations(made, status, text):
    result = made.result(type=RuleType.MUTATION, status=status, message="oh")
    assert render_failures(Verdict(made.request(), (result,))) == text


@pytest.mark.parametrize(
    ("failure", "secret", "text"),
    [
        (Failure("/a/0", expected=True, found=False), False, "at /a/0: expected true, found false"),
        (Failure("", [1], {"b": "x"}), False, 'expected [1], found {"b":"x"}'),
        (Failure("/a", 1, 2, "not a\n number"), False, "at /a: expected 1, found 2"),
        (Failure("/a", None, 2, "not\n allowed"), False, "at /a: not allowed (found 2)"),
        (Failure("/a", None, None, "not there"), False, "at /a: not there"),
        (
            Failure("/data/k", None, "c2VjcmV0", "c2VjcmV0 is bad"),
            True,
            "at /data/k: found (hidden)",
        ),
        (Failure("/data/k", "?*", "c2VjcmV0"), True, 'at /data/k: expected "?*", found (hidden)'),
        (Failure("/data/k", "?*"), True, 'at /data/k: expected "?*", found nothing'),
    ],
)
def test_failure_in_our_words(failure, secret, text):
    assert render_failure(failure, secret=secret) == text


def test_long_values_are_cut():
    assert len(render_failure(Failure("/a", "x" * 500, "y" * 500))) < 300
