"""Verdicts as answers to an API server: the words, and when a request is refused."""

from base64 import b64decode

import orjson
import pytest

from lictor.core.errors import TooLargeError
from lictor.core.model.request import Request
from lictor.core.model.result import Action, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import (
    AdmissionAnswer,
    AnswerOptions,
    AnswerStyle,
    build_answer,
    render_refusal,
    render_review,
)

POD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
}
REQUEST = Request.of(POD)
HEAD = "\n\nresource Pod/shop/web was blocked due to the following policies \n\n"


def _result(
    status: Status,
    *,
    policy: str = "p",
    rule: str = "r",
    action: Action = Action.ENFORCE,
    kind: RuleType = RuleType.VALIDATION,
) -> Result:
    return Result(PolicyRef(policy), rule, kind, status, f"{rule} says {status}", action)


def _answer(
    manner: AnswerStyle,
    *results: Result,
    closed: bool = True,
    warning: tuple[str, ...] = (),
    patched: JsonObject | None = POD,
) -> AdmissionAnswer:
    voices = AnswerOptions(manner, lambda _: closed, frozenset(warning))
    return build_answer(Verdict(REQUEST, results, patched=patched), voices)


FAIL, ERROR, PASS, SKIP, WARN = Status.FAIL, Status.ERROR, Status.PASS, Status.SKIP, Status.WARN
CLASSIC, MUTATING = AnswerStyle.CLASSIC_VALIDATING, AnswerStyle.CLASSIC_MUTATING
CEL, CEL_MUTATING = AnswerStyle.CEL_VALIDATING, AnswerStyle.CEL_MUTATING
AUDIT = Action.AUDIT


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_answer(CLASSIC, _result(PASS), _result(SKIP)), AdmissionAnswer()),
        (
            _answer(CLASSIC, _result(FAIL), _result(PASS, rule="s"), _result(FAIL, policy="a")),
            AdmissionAnswer(
                allowed=False, message=f"{HEAD}a:\n  r: r says fail\np:\n  r: r says fail\n"
            ),
        ),
        (
            _answer(CLASSIC, _result(ERROR)),
            AdmissionAnswer(allowed=False, message=f"{HEAD}p:\n  r: r says error\n"),
        ),
        (
            _answer(CLASSIC, _result(ERROR), closed=False),
            AdmissionAnswer(warnings=("policy p.r: r says error",)),
        ),
        (
            _answer(CLASSIC, _result(FAIL, action=AUDIT), _result(WARN, rule="w"), warning=("p",)),
            AdmissionAnswer(warnings=("policy p.r: r says fail", "policy p.w: w says warn")),
        ),
        # What a policy only audits is told where it says so, and what passes never is.
        (_answer(CLASSIC, _result(FAIL, action=AUDIT)), AdmissionAnswer()),
        (
            _answer(CLASSIC, _result(PASS), _result(SKIP, rule="s"), warning=("p",)),
            AdmissionAnswer(),
        ),
        (
            _answer(CLASSIC, _result(FAIL), _result(FAIL, policy="q", action=AUDIT)),
            AdmissionAnswer(allowed=False, message=f"{HEAD}p:\n  r: r says fail\n"),
        ),
        # A change that cannot be made refuses the request, whatever its policy audits.
        (
            _answer(MUTATING, _result(ERROR, action=AUDIT, kind=RuleType.MUTATION)),
            AdmissionAnswer(
                allowed=False,
                message="mutation policy p error: failed to apply policy p rules [r: r says error]",
            ),
        ),
        (
            _answer(MUTATING, _result(ERROR, action=AUDIT, kind=RuleType.MUTATION), closed=False),
            AdmissionAnswer(warnings=("policy p.r: r says error",)),
        ),
        (
            _answer(MUTATING, _result(FAIL, kind=RuleType.IMAGE_VERIFY)),
            AdmissionAnswer(allowed=False, message=f"{HEAD}p:\n  r: r says fail\n"),
        ),
        (
            _answer(CEL, _result(FAIL), _result(ERROR, policy="q")),
            AdmissionAnswer(
                allowed=False, message="Policy p failed: r says fail; Policy q error: r says error"
            ),
        ),
        (
            _answer(CEL, _result(FAIL, action=AUDIT), warning=("p",)),
            AdmissionAnswer(warnings=("Policy p failed: r says fail",)),
        ),
        (_answer(CEL, _result(FAIL, action=AUDIT)), AdmissionAnswer()),
        (
            _answer(CEL_MUTATING, _result(ERROR), _result(ERROR, policy="q")),
            AdmissionAnswer(
                allowed=False,
                message="Resource: shop/web, Kind: Pod, Errors: "
                "[Policy p: r says error Policy q: r says error]",
            ),
        ),
        (_answer(CEL_MUTATING, _result(ERROR, action=AUDIT)), AdmissionAnswer()),
    ],
)
def test_answers(answer: AdmissionAnswer, expected: AdmissionAnswer) -> None:
    assert answer == expected


@pytest.mark.parametrize("manner", [MUTATING, CEL_MUTATING])
def test_changes_become_a_patch(manner: AnswerStyle) -> None:
    patched = {**POD, "metadata": {**POD["metadata"], "labels": {"a": "b"}}}
    answer = _answer(manner, _result(PASS), patched=patched)
    assert answer.patch == ({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},)


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        (AdmissionAnswer(), {"uid": "u", "allowed": True}),
        (
            AdmissionAnswer(allowed=False, message="no", warnings=("beware",)),
            {
                "uid": "u",
                "allowed": False,
                "status": {"status": "Failure", "message": "no"},
                "warnings": ["beware"],
            },
        ),
    ],
)
def test_reviews(answer: AdmissionAnswer, response: JsonObject) -> None:
    assert orjson.loads(render_review("u", answer, "")) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }


def test_patches_are_encoded() -> None:
    patch = ({"op": "remove", "path": "/x"},)
    review = orjson.loads(render_review("u", AdmissionAnswer(patch=patch), "admission.k8s.io/v1"))
    assert review["response"]["patchType"] == "JSONPatch"
    assert orjson.loads(b64decode(review["response"]["patch"])) == list(patch)
    refused = orjson.loads(
        render_review("u", AdmissionAnswer(allowed=False, message="no", patch=patch))
    )
    assert "patch" not in refused["response"]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"r": "plain words"}, "p:\n  r: plain words\n"),
        ({"r": "a: b"}, "p:\n  r: 'a: b'\n"),
        ({"r": "it's - # fine"}, "p:\n  r: 'it''s - # fine'\n"),
        ({"r": "two\nlines"}, "p:\n  r: |-\n    two\n    lines\n"),
        ({"r": "lines\n"}, "p:\n  r: |\n    lines\n"),
        ({"r": ""}, 'p:\n  r: ""\n'),
        ({"r": "true", "s": "12", "t": "1.5e3"}, 'p:\n  r: "true"\n  s: "12"\n  t: "1.5e3"\n'),
        ({"": "x"}, 'p:\n  "": x\n'),
        ({"r-10": "x", "r-9": "z"}, "p:\n  r-9: z\n  r-10: x\n"),
        (
            {"b": "x", "a1": "x", "a01": "x", "a.b": "x", "~": "x", "Z": "x", "a": "x", "": "x"},
            'p:\n  "": x\n  "~": x\n  Z: x\n  a: x\n  a.b: x\n  a1: x\n  a01: x\n  b: x\n',
        ),
        ({"a20": "x", "a3": "x", "a100": "x"}, "p:\n  a3: x\n  a20: x\n  a100: x\n"),
        ({"r": "`quoted`"}, "p:\n  r: '`quoted`'\n"),
        ({"r": "größer ☃"}, "p:\n  r: größer ☃\n"),
        ({"r": "tab\there"}, 'p:\n  r: "tab\\there"\n'),
        (
            {"r": "word " * 17 + "end"},
            f"p:\n  r: {'word ' * 15}word\n    word end\n",
        ),
    ],
)
def test_refusals_as_yaml(rules: dict[str, str], text: str) -> None:
    assert render_refusal({"p": rules}) == text


def test_answers_have_a_largest_size() -> None:
    """A policy can make its messages as large as memory is; nobody could read them."""
    texts = tuple("x" * 200_000 for _ in range(200))
    assert len(render_review("1", AdmissionAnswer(allowed=False, message=texts[0]))) < 70_000
    assert len(render_review("1", AdmissionAnswer(warnings=texts))) < 7_000_000


@pytest.mark.parametrize(("size", "is_written"), [(1_000_000, True), (3_500_000, False)])
def test_patches_have_a_largest_size(size: int, *, is_written: bool) -> None:
    """What it would make of an object could not be stored."""
    answer = AdmissionAnswer(patch=({"op": "add", "path": "/data/a", "value": "x" * size},))
    if is_written:
        assert len(render_review("1", answer)) > size
        return
    with pytest.raises(TooLargeError, match="larger than 3 MiB"):
        render_review("1", answer)
