"""Templates with CEL placeholders: how text is taken apart, and what is refused."""

import pytest

from lictor.core.errors import CompileError
from lictor.core.lang.cel_template import Placeholder, parse_template, split_scalar


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", ("plain",)),
        ("(( a ))", (Placeholder("a"),)),
        ("x-(( a.b ))-y", ("x-", Placeholder("a.b"), "-y")),
        ("(( a ))(( b ))", (Placeholder("a"), Placeholder("b"))),
        ("((f((1), 2)))", (Placeholder("f((1), 2)"),)),
        ('(( \'))\' + "\\"))" ))', (Placeholder('\'))\' + "\\"))"'),)),
        ("\\(( a )) (( b ))", ("(( a )) ", Placeholder("b"))),
    ],
)
def test_scalars(text, parts):
    assert split_scalar(text) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: x(( ))", "line 2: empty placeholder at offset 1"),
        ("a: (( x ) ))", "line 1: unbalanced parenthesis in placeholder starting at offset 0"),
        ("a: (( x", "line 1: unterminated placeholder starting at offset 0: missing closing '))'"),
        ("a: (( 'x ))", "line 1: unterminated string literal in placeholder starting at offset 0"),
        ("---\n# nothing\n", "template must contain at least one YAML document"),
        ("a: 1\n---\n- 1", "line 3: document must be a mapping describing a resource"),
        ("a:\n  '(( x ))': 1", "line 2: placeholders are not allowed in keys"),
    ],
)
def test_faults(text, message):
    with pytest.raises(CompileError, match=r".*") as caught:
        parse_template(text, interpolate=True)
    assert caught.value.message == message


def test_a_whole_document_is_checked_when_it_is_rendered():
    (document,) = parse_template("(( variables.object ))", interpolate=True)
    assert document.scalars == {(): (Placeholder("variables.object"),)}
