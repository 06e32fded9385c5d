"""The short form: nothing asked twice, optional chains, one loop, both objects of an update."""

import pytest
from converting import build_policy, compare, convert, convert_alike

from lictor.addons.convert.cel_tests import Atom, all_of, any_of, for_all, for_some, negate, render
from lictor.addons.convert.cel_tests import compare as comparing
from lictor.addons.convert.document import fold
from lictor.addons.convert.simplify import find_default, simplify


def has(path):
    return Atom(f"has({path})")


SIMPLER = {
    "a chain with a default": (
        all_of((has("a.b"), has("a.b.c"), comparing("a.b.c", "==", "true"))),
        "a.?b.?c.orValue(false) == true",
    ),
    "a chain that may be missing": (
        any_of((negate(has("a.b")), negate(has("a.b.c")), comparing("a.b.c", "==", '"x"'))),
        'a.?b.?c.orValue("x") == "x"',
    ),
    "a key that is no name": (
        all_of((has("a.b"), Atom('"x/y" in a.b'), comparing('a.b["x/y"]', "!=", '""'))),
        'a.?b[?"x/y"].orValue("") != ""',
    ),
    "an element is not a key": (
        all_of((has("spec.texts"), Atom('"x" in spec.texts'))),
        '"x" in spec.?texts.orValue([])',
    ),
    "presence of what is deep": (all_of((has("a.b"), has("a.b.c"))), "a.?b.?c.hasValue()"),
    "a value that is asked about twice": (
        all_of((has("a.b"), comparing("a.b", ">", "1"), comparing("a.b", "<", "9"))),
        "has(a.b) && a.b > 1 && a.b < 9",
    ),
    "no default makes it hold": (
        any_of((negate(has("a.b")), comparing("a.b", ">", "0"))),
        "!has(a.b) || a.b > 0",
    ),
    "a longer form is not shorter": (
        any_of((negate(has("a.b")), Atom('a.b in ["a-very-long-text-indeed", "y"]'))),
        '!has(a.b) || a.b in ["a-very-long-text-indeed", "y"]',
    ),
    "a list that may be missing": (
        any_of((negate(has("a.b")), for_all("a.b", "x", has("x.y")))),
        "a.?b.orValue([]).all(x, has(x.y))",
    ),
    "a list that must be there": (
        all_of((has("a.b"), for_all("a.b", "x", has("x.y")))),
        "has(a.b) && a.b.all(x, has(x.y))",
    ),
    "one loop for several lists": (
        all_of((for_all("a.b", "item", has("item.y")), for_all("a.c", "thing", has("thing.y")))),
        "(a.b + a.c).all(item, has(item.y))",
    ),
    "a field with the name of a variable": (
        any_of((for_some("a.b", "b", has("b.c.b")), for_some("a.c", "cc", has("cc.c.b")))),
        "(a.b + a.c).exists(b, has(b.c.b))",
    ),
    "what is known": (
        any_of((negate(has("a.b")), all_of((has("a.b"), comparing("c", "==", "1"))))),
        "!has(a.b) || c == 1",
    ),
    "what may fail stays": (
        all_of((Atom("f(a)", risky=True), has("a.b"), has("a.b"))),
        "f(a) ? has(a.b) : false",
    ),
}


@pytest.mark.parametrize(("test", "expected"), SIMPLER.values(), ids=SIMPLER)
def test_simpler_tests(test, expected):
    assert render(simplify(test)) == expected


@pytest.mark.parametrize(
    ("test", "holds", "expected"),
    [
        ("a.b == 0", True, "0"),
        ("a.b == 0", False, None),
        ("a.b == 5", False, "0"),
        ("a.b != true", False, "true"),
        ("a.b <= 5", True, "0"),
        ("a.b > 5", False, "0"),
        ("a.b > 5", True, None),
        ('a.b in ["x", ""]', False, None),
        ('!(a.b in ["x"])', True, '""'),
        ("a.b.size() > 0", False, "[]"),
        ('a.b.startsWith("x")', False, '""'),
        ('a.b.startsWith("x")', True, None),
        ('a.b.startsWith("")', False, None),
        ("a.b == null", True, None),
        ("a.b == c.d", True, None),
        ("a.c == 1", True, None),
    ],
)
def test_defaults(test, holds, expected):
    assert find_default(test, "a.b", holds=holds) == expected


CONTAINER = {"=(securityContext)": {"=(privileged)": "false"}}
PRIVILEGED = {
    "validate": {
        "message": "no",
        "failureAction": "Enforce",
        "pattern": {"spec": {"=(initContainers)": [CONTAINER], "containers": [CONTAINER]}},
    }
}


def test_an_update_asks_once_about_both_objects():
    policy = build_policy(PRIVILEGED)
    (document,) = convert(policy).documents
    variables = {
        each["name"]: " ".join(each["expression"].split()) for each in document["spec"]["variables"]
    }
    assert variables["isRight"] == (
        "variables.podSpecs.map(podSpec, podSpec == null || (has(podSpec.containers) && "
        "(podSpec.containers + podSpec.?initContainers.orValue([])).all(container, "
        "container.?securityContext.?privileged.orValue(false) == false)))"
    )
    (validation,) = document["spec"]["validations"]
    assert validation["expression"] == "variables.isRight[0] || !variables.isRight[1]"
    assert compare(policy, [document]).differences == ()


@pytest.mark.parametrize("fault", ["!variables.isRight[0]", "variables.isRight[0]"])
def test_the_comparison_notices_a_wrong_short_form(fault):
    policy = build_policy(PRIVILEGED)
    (document,) = convert(policy).documents
    document["spec"]["validations"][0]["expression"] = fault
    assert compare(policy, [document]).differences


def test_a_patch_names_the_place_of_the_pod():
    patch = {"spec": {"+(nodeSelector)": {"disk": "ssd"}}}
    policy = build_policy({"mutate": {"patchStrategicMerge": patch}})
    form, comparison = convert_alike(policy)
    assert comparison.differences == ()
    assert len(form.documents) == 1


def test_mutations_of_different_kinds_share_a_policy():
    def label(kind, value):
        return {
            "match": {"any": [{"resources": {"kinds": [kind]}}]},
            "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"kind": value}}}},
        }

    policy = build_policy(label("Service", "one"), label("Secret", "two"))
    form, comparison = convert_alike(policy)
    assert comparison.differences == ()
    (document,) = form.documents
    texts = [each["applyConfiguration"]["expression"] for each in document["spec"]["mutations"]]
    assert [text.partition(" ? ")[0] for text in texts] == [
        '(request.kind.kind == "Service")',
        '(request.kind.kind == "Secret")',
    ]


def test_long_expressions_are_broken_at_the_outermost_place():
    long = "a" * 40
    assert fold(f"{long} && f(x, {long} || {long}) && b") == (
        f"{long} &&\nf(x, {long} ||\n  {long}) &&\nb"
    )
    assert fold("short && text") == "short && text"
