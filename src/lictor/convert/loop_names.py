"""The same loop with another name for its elements."""

import re

from msgspec.structs import replace

from lictor.convert.cel_tests import (
    Atom,
    ConditionalTest,
    JoinedTests,
    LoopTest,
    SettledTest,
    Test,
)

_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")')


def rename_loop(loop: LoopTest, name: str) -> LoopTest | None:
    """The loop with the name; None where it means something else there."""
    if loop.name == name:
        return loop
    if _uses(loop.body, name):
        return None
    return replace(loop, name=name, body=_rename(loop.body, loop.name, name))


def rename_in_text(text: str, old: str, new: str) -> str:
    """The text with another name for a variable; fields and strings of that name stay."""
    word = re.compile(rf"(?<![\w.?]){re.escape(old)}\b")
    pieces = _STRINGS.split(text)
    return "".join(p if p.startswith('"') else word.sub(new, p) for p in pieces)


def _uses(test: Test, name: str) -> bool:
    match test:
        case Atom():
            return rename_in_text(test.text, name, f"{name}_") != test.text
        case JoinedTests():
            return any(_uses(part, name) for part in test.parts)
        case LoopTest():
            mentioned = rename_in_text(test.source, name, f"{name}_") != test.source
            return mentioned or test.name == name or _uses(test.body, name)
        case ConditionalTest():
            return any(_uses(part, name) for part in (test.condition, test.then, test.other))
        case SettledTest():
            return False


def _rename(test: Test, old: str, new: str) -> Test:
    match test:
        case Atom():
            return replace(
                test,
                text=rename_in_text(test.text, old, new),
                opposite=rename_in_text(test.opposite, old, new),
            )
        case JoinedTests():
            return JoinedTests(tuple(_rename(part, old, new) for part in test.parts), test.every)
        case LoopTest():
            if test.name == old:
                return replace(test, source=rename_in_text(test.source, old, new))
            return replace(
                test,
                source=rename_in_text(test.source, old, new),
                body=_rename(test.body, old, new),
            )
        case ConditionalTest():
            return replace(
                test,
                condition=_rename(test.condition, old, new),
                then=_rename(test.then, old, new),
                other=_rename(test.other, old, new),
            )
        case SettledTest():
            return test
