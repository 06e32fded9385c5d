"""What do the members of a group add up to?"""

import time

import pytest

from lictor.addons.kubewarden.family.group_expression import Truth, compile_group_expression
from lictor.core.errors import SyntaxFaultError

MEMBERS: dict[str, Truth] = {"good": True, "bad": False, "dead": None}


@pytest.mark.parametrize(
    ("text", "expected", "asked"),
    [
        ("good()", True, "good"),
        ("bad()", False, "bad"),
        ("dead()", None, "dead"),
        ("true", True, ""),
        ("false", False, ""),
        ("!bad()", True, "bad"),
        ("!!good()", True, "good"),
        ("good() && bad()", False, "good bad"),
        ("bad() && dead()", False, "bad"),
        ("good() || dead()", True, "good"),
        ("bad() || good() && good()", True, "bad good good"),
        ("(bad() || good()) && bad()", False, "bad good bad"),
        ("!(good() && bad())", True, "good bad"),
        ("!good() == bad()", True, "good bad"),
        ("good() != bad()", True, "good bad"),
        ("good() ^ good()", False, "good good"),
        ("bad() & good() | good()", True, "bad good"),
        ("good() // said\n && /* again */ good()", True, "good good"),
        # One that gave no answer is left out of account only where the others decide.
        ("!dead()", None, "dead"),
        ("dead() || good()", True, "dead good"),
        ("dead() || bad()", None, "dead bad"),
        ("dead() && bad()", False, "dead bad"),
        ("dead() && good()", None, "dead good"),
        ("!(dead() && good())", None, "dead good"),
        ("good() && !dead()", None, "good dead"),
        ("dead() == dead()", None, "dead dead"),
        ("dead() != good()", None, "dead good"),
        ("dead() ^ bad()", None, "dead bad"),
    ],
)
def test_expressions(text: str, expected: Truth, asked: str) -> None:
    heard: list[str] = []

    def ask(name: str) -> Truth:
        heard.append(name)
        return MEMBERS[name]

    # Operators with two signs do not ask what they need not; those with one sign neither.
    assert compile_group_expression(text, MEMBERS)(ask) is expected
    assert heard == asked.split()


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "ends too early", 0),
        ("good() &&", "ends too early", 9),
        ("nobody()", "'nobody' is no member of the group; the members are: bad, dead, good", 0),
        ("good", "'(' is expected", 4),
        ("good(1)", "'1' is not expected", 5),
        ("good() and bad()", "'and' is not expected", 7),
        ("good(); bad()", "';' is not expected", 6),
        ("my-policy()", "'-' is not expected", 2),
        ("(good()", "')' is expected", 7),
        ("good())", "')' is not expected", 6),
        ("()", "a member is expected", 1),
        ("1 < 2", "'1' is not expected", 0),
        ("if good() { bad() }", "'{' is not expected", 10),
        ('eval("good()")', "'\"' is not expected", 5),
        ("!" * 100 + "good()", "deep", 64),
        ("&&".join(["good()"] * 500), "too long", 2004),
    ],
)
def test_faults(text: str, message: str, position: int) -> None:
    with pytest.raises(
        SyntaxFaultError, match=message.replace("(", r"\(").replace(")", r"\)")
    ) as told:
        compile_group_expression(text, MEMBERS)
    assert told.value.position == position


def test_the_longest_expression_can_be_asked() -> None:
    text = "&&".join(["good()"] * 249)
    assert compile_group_expression(text, MEMBERS)(MEMBERS.__getitem__) is True


def test_blanks_and_comments_take_no_time_to_speak_of():
    begin = time.thread_time()
    for text in ("a()" + " " * 60_000 + "$", "a()" + "/**/" * 15_000 + "$", "good() /* " * 6_000):
        with pytest.raises(SyntaxFaultError):
            compile_group_expression(text, {*MEMBERS, "a"})
    assert time.thread_time() - begin < 2
