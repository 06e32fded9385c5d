"""YAML as Kubernetes reads it: what sigs.k8s.io/yaml 1.6 answered, as tables."""

import time

import pytest

from lictor.core.errors import LoadError
from lictor.core.load.yaml import Document, iter_documents, read_documents


def read_one(text):
    (document,) = iter_documents(text, "f.yaml")
    return document.body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("Y", True),
        ("yes", True),
        ("On", True),
        ("TRUE", True),
        ("n", False),
        ("no", False),
        ("OFF", False),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("nuLL", "nuLL"),
        ("'y'", "y"),
        ('"null"', "null"),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("014", 12),
        ("0o14", 12),
        ("0O14", 12),
        ("08", 8),
        ("0o8", "0o8"),
        ("0x1F", 31),
        ("-0x1F", -31),
        ("0b101", 5),
        ("0b2", "0b2"),
        ("0x", "0x"),
        ("1_000", 1000),
        ("1__0", 10),
        ("0_", 0),
        ("_1", "_1"),
        ("0x_1F", 31),
        ("1_000.5", 1000.5),
        ("1.", 1),
        ("1.0", 1),
        ("-0.0", 0),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1e", "1e"),
        ("1e-3", 0.001),
        ("1e20", 1e20),
        ("1e400", "1e400"),
        (".5", 0.5),
        ("+.5", 0.5),
        ("._5", "._5"),
        (".0_5", 0.05),
        (".0_0", 0),
        (".1_1e1_0", 1100000000),
        (".5_", ".5_"),
        (".5__5", ".5__5"),
        ("0b-0", 0),
        ("0b+1", 1),
        ("0_b-0", 0),
        ("0b-1_", -1),
        ("-0b1", -1),
        ("-0b+1", "-0b+1"),
        ("0B-0", "0B-0"),
        ("! 12", "12"),
        ('! "true"', "true"),
        ('! ""', ""),
        ("! ~", "~"),
        ("&a ! 12", "12"),
        ("! &a 12", "12"),
        ("!\n  12", "12"),
        ("true  ", True),
        ("12 # c", 12),
        ("x ' ", "x '"),
        (".", "."),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", 9223372036854775808.0),
        ("18446744073709551616", 18446744073709551616.0),
        ("-9223372036854775809", -9223372036854775809.0),
        ("1152921504606846976.0", 1152921504606847000),
        ("2001-01-01", "2001-01-01"),
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("100m", "100m"),
        ("٣", "٣"),
        ("inf", "inf"),
        ("NaN", "NaN"),
        ("<<", "<<"),
        ("!!str 12", "12"),
        ("!!str", ""),
        ("!!int '12'", 12),
        ("!!int 0x10", 16),
        ("!!float 3", 3),
        ("!!bool yes", True),
        ("!!null ''", None),
        ("!!binary aGVsbG8=", "hello"),
        ("!!binary /w==", "\ufffd"),
        ("!anything 12", "12"),
        ("!anything [1]", [1]),
        ("|\n  x\n  y\n", "x\ny\n"),
        (">-\n  x\n  y\n", "x y"),
        ('"\\u00e9\\x41"', "éA"),
    ],
)
def test_scalar(text, value):
    body = read_one(f"a: {text}\n")
    assert body == {"a": value}
    assert type(body["a"]) is type(value)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("1", "1"),
        ("01", "1"),
        ("true", "true"),
        ("off", "false"),
        ("1.5", "1.5"),
        ("0.1", "0.1"),
        ("1.0", "1"),
        ("100000.0", "100000"),
        ("1e6", "1e+06"),
        ("1000000.5", "1.0000005e+06"),
        ("0.00001", "1e-05"),
        ("3.4e39", ".inf"),
        ("-.inf", "-.inf"),
        (".nan", ".nan"),
        ("2001-01-01", "2001-01-01"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("'<<'", "<<"),
    ],
)
def test_key(key, name):
    assert read_one(f"{key}: v") == {name: "v"}


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("<<: {a: 2}\na: 1", {"a": 1}),
        ("a: 1\n<<: {a: 2}", {"a": 2}),
        ("x: &x {a: 1, b: 2}\nz: {<<: *x, b: 3}", {"x": {"a": 1, "b": 2}, "z": {"a": 1, "b": 3}}),
        (
            "x: &x {a: 1}\nz: &z {a: 2, c: 3}\nw: {<<: [*x, *z]}",
            {"x": {"a": 1}, "z": {"a": 2, "c": 3}, "w": {"a": 1, "c": 3}},
        ),
        ("!!merge <<: {a: 1}", {"a": 1}),
        ("a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
        ("a: 1\na: 2", {"a": 2}),
        ("[1, 2.0]", [1, 2]),
        ("12", 12),
        ("\ufeffa: 1", {"a": 1}),
        ("a: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("a: |\r\n  x\r\n", {"a": "x\n"}),
        ("a: 1\n...\n", {"a": 1}),
        ("a:\t1", {"a": 1}),
        ('---\n{"a":\t1, "b": [1e2, 2.0, 1.5]}', {"a": 1, "b": [100, 2, 1.5]}),
        ('{"a": 12345678901234567890}', {"a": 12345678901234567890.0}),
        ('{"a": "😀"}', {"a": "😀"}),
        # Only the first document of a part counts.
        ("a: 1\n...\nb: 2", {"a": 1}),
        ("[a] ]", ["a"]),
        ('# c\n{"a": 1}\n{"b": 2}', {"a": 1}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("a: &x [&x 1, *x]\nb: *x", {"a": [1, 1], "b": 1}),
        ("{a: +:, b: [x:]}", {"a": "+:", "b": ["x:"]}),
        ('a: "it\\\'s"', {"a": "it's"}),
        ("# c\n\ufeffa: 1", {"\ufeffa": 1}),
        ("a: 1\n---# c\n", {"a": 1}),
        ("a: 1\n--- \u2003\n# c", {"a": 1}),
        ("a: 1\u2028# c\u2028b: 2", {"a": 1, "b": 2}),
        ("a: {? b : 1}", {"a": {"b": 1}}),
        ("x: {~: 1}\nx: 2", {"x": 2}),
        ("{a: b}", {"a": "b"}),
        ("{}", {}),
    ],
)
def test_document(text, body):
    assert read_one(text) == body


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        ("\ufeffa: é".encode("utf-16-le"), {"a": "é"}),
        ("\ufeffa: é".encode("utf-16-be"), {"a": "é"}),
    ],
)
def test_encoding(data, body):
    assert read_one(data) == body


DEEP = 300


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: .inf", "f.yaml:1:4", "inf"),
        ("a: [1, .nan]", "f.yaml:1:8", "nan"),
        ("~: 1", "f.yaml:1:1", "null cannot be a key"),
        ("? [1]\n: 2", "f.yaml:1:3", "cannot be a key"),
        ("18446744073709551615: 1", "f.yaml:1:1", "cannot be a key"),
        ("a: !!int foo", "f.yaml:1:4", "!!int"),
        ("a: !!null foo", "f.yaml:1:4", "!!null"),
        ("a: !!binary '%%'", "f.yaml:1:4", "base64"),
        ("a:\n  <<: 1", "f.yaml:2:7", "map merge"),
        ("a: &a [*a]", "f.yaml:1:8", "contains itself"),
        ("a: *b", "f.yaml:1:4", "unknown anchor 'b'"),
        ("a: &a {b: [*a]}", "f.yaml:1:12", "contains itself"),
        ("a: &a [{b: 1}]\nc: {<<: *a}", "f.yaml:2:9", "map merge"),
        ("1: a\n'1': b", "f.yaml:2:1", "the same text"),
        ("'true': a\ny: b", "f.yaml:2:1", "the same text"),
        ("1: a\n1.0: b", "f.yaml:2:1", "the same text"),
        ("a: {1: x}\n<<: {'1': x}\n1: x", "f.yaml:3:1", "the same text"),
        ("--- {a: 1}", "f.yaml:1:4", "separator"),
        ("a: 1\n---x\nb: 1", "f.yaml:2:4", "separator"),
        ("%YAML 1.1\n---\na: 1", "f.yaml:2:1", "document start"),
        ("# c\r%YAML 1.2\r---\ra: 1\r", "f.yaml:2:1", "incompatible"),
        ("[a?b]", "f.yaml:1:2", "'?'"),
        ('a: "\\/"', "f.yaml:1:4", "escape"),
        ("[!!str, a]", "f.yaml:1:2", "after the tag"),
        ("a: !!timestamp x", "f.yaml:1:4", "!!timestamp"),
        ("a: !!float 9223372036854775808", "f.yaml:1:4", "!!float"),
        (f"a: {'x' * 200}\ufeff", "f.yaml:1:204", "byte order mark"),
        ("\ufeff\ufeff\ufeffa: 1", "f.yaml:1:1", "byte order mark"),
        # kubectl reads JSON where Kyverno reads YAML.
        ('{"a": 1.0}', "f.yaml:1:7", "different values"),
        ('{"a": "x\x85y"}', "f.yaml:1:1", "different values"),
        ('{"a": "\\ud83d\\ude00"}', "f.yaml:1:", "escape code"),
        ('{"a": 1}\n{"b": 2}', "f.yaml:2:1", "more than one JSON value"),
        ('{"a": 1}\n---# c\n{"b": 2}', "f.yaml:1:9", "cannot read what follows"),
        ('{"a": 1} # c', "f.yaml:1:9", "cannot read what follows"),
        ("{}\n...\n", "f.yaml:1:3", "cannot read what follows"),
        ("\t{}", "f.yaml:1:1", "cannot start any token"),
        ("a: [1,\n2", "f.yaml:3:1", ""),
        ("ok: 1\nb: c: d", "f.yaml:2:5", ""),
        ("\ta: 1", "f.yaml:1:1", ""),
        ("a: \x07", "f.yaml:1:1", "control characters"),
        ("a: \ud800", "f.yaml:1:1", "Unicode"),
        (b"x: 1\na: \xff", "f.yaml:2:1", "utf-8"),
        (b"\xff\xfe\x00", "f.yaml:1:1", "utf-16"),
        ("[" * DEEP + "]" * DEEP, "f.yaml:1:1", "nested deeper"),
        ("- " * 100_000, "f.yaml:1:401", "nested deeper"),
        ("[" * 100_000, "f.yaml:1:201", "nested deeper"),
        ("{a: " * DEEP, "f.yaml:1:", ""),
        ("\n".join(" " * i + "a:" for i in range(DEEP)), "f.yaml:201:201", "nested deeper"),
    ],
)
def test_broken(text, where, words):
    with pytest.raises(LoadError) as caught:
        list(iter_documents(text, "f.yaml"))
    assert caught.value.where.startswith(where)
    assert words in caught.value.message


@pytest.mark.parametrize("item", ["[{}]", "{{<<: [{}]}}"])
def test_alias_bomb_is_refused(item):
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        aliases = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {item.format(aliases)}")
    with pytest.raises(LoadError, match="excessive aliasing"):
        list(iter_documents("\n".join(lines), "f.yaml"))


POD = '{"apiVersion": "v1", "kind": "Pod"}'


@pytest.mark.parametrize("line_break", ["\r", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("head", ["# x", "---\n# x", "a: 1\n---\n# x", "%TAG ! x"])
def test_what_another_line_break_uncovers_is_never_left_out(head, line_break):
    """kubectl applies the Pod; Kyverno sees a comment, unless something stands before it."""
    found = list(read_documents(f"{head}{line_break}{POD}\n", "f.yaml"))
    last = found[-1]
    if isinstance(last, LoadError):
        assert last.where.startswith("f.yaml:")
    else:
        assert last.body == {"apiVersion": "v1", "kind": "Pod"}


HOSTILE = {
    "tiny scalars": lambda size: "{" + "a," * size + "}",
    "empty lines of a block scalar": lambda size: "a: |\n b\n" + "\n" * size + "c: [\n",
    "words": lambda size: "a: " + "b " * size + ": c\n",
    "colons": lambda size: "a: " + "b:" * size + " c\n",
    "quotes": lambda size: "a: '" + "''" * size + "\n",
    "blanks": lambda size: " " * size + "@\n",
    "comments": lambda size: "#}\n" * size + "\r",
    "dashes": lambda size: "- @\n" * size,
    "marks": lambda size: "a: 1\n" + "---# \xa0\n" * size,
    "colons before commas": lambda size: "[" + "a:," * size + "]",
    "closing braces": lambda size: "{" + "}#" * size + "\n",
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_text_takes_about_twice_the_time(make):
    def measure(size):
        text = make(size)
        began = time.process_time()
        found = list(read_documents(text, "f.yaml"))
        assert found is not None
        return time.process_time() - began

    size = 20_000
    measure(size)
    small, large = (min(measure(each) for _ in range(3)) for each in (size, 4 * size))
    # Quadratic time would be 16 times as much.
    assert large < 9 * small + 0.05


def test_alias_chain_is_too_deep():
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 250))]
    with pytest.raises(LoadError, match=r"nested deeper|aliasing"):
        list(iter_documents("\n".join(lines), "f.yaml"))


def test_many_small_brackets_are_not_deep():
    assert len(read_one("a: [" + ", ".join(["[1]"] * 5000) + "]")["a"]) == 5000


def test_broken_document_does_not_stop_the_others():
    text = "# head\n---\na: 1\n---\nb: [\n---\n\nc: 3\n---\n# nothing\n---\n---\nd: 4\n"
    found = list(read_documents(text, "f.yaml"))
    assert [d.body if isinstance(d, Document) else "broken" for d in found] == [
        {"a": 1},
        "broken",
        {"c": 3},
        {"d": 4},
    ]
    assert [d.line for d in found if isinstance(d, Document)] == [3, 8, 13]
    assert found[1].where.startswith("f.yaml:6:")


def test_separator_inside_text_is_text():
    assert read_one("a: |\n  x\n  ---\n  y\n") == {"a": "x\n---\ny\n"}
    assert len(list(iter_documents("a: 1\n--- # comment\nb: 2\n", "f"))) == 2


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ((), (4, 1)),
        (("spec",), (5, 1)),
        (("spec", "list"), (6, 3)),
        (("spec", "list", 1), (8, 5)),
        (("spec", "list", 1, "b"), (8, 12)),
        (("spec", "list", 7), (6, 3)),
        (("spec", "nothing", "here"), (5, 1)),
    ],
)
def test_position(path, position):
    text = "a: 1\n---\n# comment\nkind: X\nspec:\n  list:\n  - a\n  - {a: 1, b: 2}\n"
    document = list(iter_documents(text, "f.yaml"))[1]
    assert document.position(path) == position
    assert document.where(path) == f"f.yaml:{position[0]}:{position[1]}"


def test_position_in_json():
    text = '\n{\n "a": {\n  "b": 1}}'
    (document,) = iter_documents(text, "f.json")
    assert document.line == 2
    assert document.position(("a", "b")) == (4, 3)


@pytest.mark.parametrize(
    ("text", "duplicates"),
    [
        ("a: 1\nb: 2\na: 3", (("a", 3, 1),)),
        ("x: {a: 1, a: 2}", (("a", 1, 11),)),
        ("1: a\n0x1: b", (("1", 2, 1),)),
        ("<<: {a: 1}\na: 2", ()),
        ("a: {b: 1}\nc: {b: 1}", ()),
    ],
)
def test_duplicates_are_noted(text, duplicates):
    (document,) = iter_documents(text, "f")
    assert document.duplicates == duplicates


@pytest.mark.parametrize("text", ["", "# only\n", "---\n", "---\n---\n", "\n\n", "---\nnull\n"])
def test_nothing(text):
    assert list(iter_documents(text, "f")) == []
