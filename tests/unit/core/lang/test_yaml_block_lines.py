"""Block YAML without nodes: what is taken reads as by the full reader, and the rest is left to it."""

import random
from pathlib import Path

import pytest

from lictor.cli.inputs.resources import find_documents
from lictor.core.lang.yaml.block_lines import read_block_lines
from lictor.core.lang.yaml.build import build_yaml
from lictor.core.load.yaml import decode_text, iter_documents

ROOT = Path(__file__).parents[4]


def read_fully(text):
    """What libyaml and the builder say, as `read_block_lines` would."""
    built = build_yaml(text)
    assert built.duplicates == [], text
    return built.body, built.line


def spell(value):
    """With types and the order of keys: for Python, True is 1, and order is nothing."""
    if isinstance(value, dict):
        return [(key, spell(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [spell(item) for item in value]
    return type(value), repr(value)


def is_taken_alike(text):
    """Whether a text is taken; if so, it has to read as by the full reader."""
    found = read_block_lines(text)
    if found is None:
        return False
    body, line = read_fully(text)
    assert (spell(found[0]), found[1]) == (spell(body), line), text
    return True


@pytest.mark.parametrize(
    ("text", "body", "line"),
    [
        ("a: 1\n", {"a": 1}, 0),
        ("---\n# c\n\na: x # c\nb: 'y'\n", {"a": "x", "b": "y"}, 3),
        ("  a: 1\n  b: 2\n", {"a": 1, "b": 2}, 0),
        ("a:\nb:\n", {"a": None, "b": None}, 0),
        ("a: {}\nb: []\n", {"a": {}, "b": []}, 0),
        ("a:\n  b:\n    c: on\n  d: 'on'\n", {"a": {"b": {"c": True}, "d": "on"}}, 0),
        ("a:\n- b\n- c: 1\n  d:\n  - 2\ne: 3\n", {"a": ["b", {"c": 1, "d": [2]}], "e": 3}, 0),
        ("a:\n  -   b: 1\n      c:\nd: x\n", {"a": [{"b": 1, "c": None}], "d": "x"}, 0),
        ("a: nginx:1.25\nb: http://x/#y\n", {"a": "nginx:1.25", "b": "http://x/#y"}, 0),
        ("f:x:\n  k.io/y: a  b, [c]\n", {"f:x": {"k.io/y": "a  b, [c]"}}, 0),
        ("a:\n- --flag=1\n- -1\n- $(X)\n", {"a": ["--flag=1", -1, "$(X)"]}, 0),
        ('a: "x  # y"\nb: "1"\n', {"a": "x  # y", "b": "1"}, 0),
        ("a: |\n  b\n\n   c # d\n\nb: 1\n", {"a": "b\n\n c # d\n", "b": 1}, 0),
        ("a: 'b''c'''\nb: ''\nd*: ''''\n", {"a": "b'c'", "b": "", "d*": "'"}, 0),
        ("a: |-\n  b: |\n    c\n", {"a": "b: |\n  c"}, 0),
        ("a: |+\n\n  b\n\n\n", {"a": "\nb\n\n\n"}, 0),
        ("a: >\n  b\n  c\n\n\n  d\n", {"a": "b c\n\nd\n"}, 0),
        ("a:\n- >-\n  b\n  c\n- d: |\n    e\n", {"a": ["b c", {"d": "e\n"}]}, 0),
        ("=(a):\n  +(b): 1\n  <(c): >+\n   d\n\n", {"=(a)": {"+(b)": 1, "<(c)": "d\n\n"}}, 0),
    ],
)
def test_what_programs_write_is_taken(text, body, line):
    assert read_block_lines(text) == (body, line)
    assert is_taken_alike(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# c\n",
        "a\n",
        "- a: 1\n",
        "a: 1\na: 2\n",
        "a: b\n  c\n",
        "a: b\n  - c\n",
        "a: b\n  c: d\n",
        "a:\n    b: 1\n  c: 2\n",
        "  a: 1\nb: 2\n",
        "a:\n  - b\n  c: 1\n",
        "a: 1\n- b\n",
        "a: |2\n  b\n",
        "a: |\n\n",
        "a: |\nb: 1\n",
        "a: |\n   b\n  c: 1\n",
        "a: |\n  b\n  \n  c\n",
        "a: |\n  \n  b\n",
        "a: >\n  b\n    c\n",
        "a: |\n  é\n",
        "a: |\n  \tb\n",
        "a: | # c\n  b\n",
        "a: x |\n  b\n",
        "- a: |\n    b\n",
        "|\n  b\n",
        "a: \x02b\n",
        "a: b",
        "a: [b]\n",
        "a: {b: c}\n",
        "a: &x b\n",
        "a: *x\n",
        "a: !!str 1\n",
        "<<: {}\n",
        "? a\n",
        "a: b: c\n",
        "a: x:\n",
        'a: "b\\n"\n',
        'a: "b\n',
        'a: "b"c\n',
        "a: 'b''\n",
        "a:\n-\n",
        "a:\n- - b\n",
        "a:\tb\n",
        "a: b\t# c\n",
        "a: é\n",
        "y: 1\n",
        "null: 1\n",
        "1: 1\n",
        "a: .nan\n",
        "a: b\n...\n",
        "a: b\n---\nc: d\n",
        "%YAML 1.1\n---\na: b\n",
        f"{' ' * 200}a: b\n",
    ],
)
def test_what_is_unusual_is_left_to_the_full_reader(text):
    assert read_block_lines(text) is None


@pytest.mark.parametrize("folder", ["examples", "tests/cases", "charts"])
def test_files_of_people_read_as_by_the_full_reader(folder):
    paths = [path for path in (ROOT / folder).rglob("*.yaml") if "templates" not in path.parts]
    texts = [
        decode_text(path.read_bytes()[span.start : span.end], str(path))
        for path in paths
        for span in find_documents(path.read_bytes())
    ]
    taken = [is_taken_alike(text) for text in texts]
    assert any(taken)


PIECES = (
    *("", "x", "1", "y", "~", "a b", "a  b", "a:b", "a: b", "a #c", "a#c", "#c", '"x"', '"x y "'),
    *('"x\\n"', "'x'", "'x''y'", "{}", "[]", "{a: 1}", "[a]", "|", ">-", "&a x", "*a", "!!str 1"),
    *(
        "- x",
        "-x",
        "--x",
        "-",
        "---",
        "...",
        ".",
        ":x",
        "a:",
        "a::",
        "@x",
        "%x",
        "$(X)",
        "+1",
        ".5",
    ),
    *("1_0", "0x1F", "1e3", "08", "=x", "a,b", "a[0]", "x}", "?", "? x", "\tx", "x\t", "é", '"é"'),
    *(
        "12:30:45",
        ".inf",
        "18446744073709551616",
        "a'b",
        '"a" b',
        "'a'#c",
        '"a" #c',
        "{} #c",
        "{}x",
    ),
    *("x\rz", "x\x85z", "\ufeffx"),
)
KEYS = (
    "a",
    "b",
    "c",
    "d",
    "e",
    "n",
    "on",
    "f:x",
    "k:",
    "a.b/c",
    "_x",
    "<<",
    '"q"',
    "1",
    "-a",
    "a b",
)
TAILS = ("", "", "", "", "", "  ", " #c", "#c", " # é", "\t")


def make_block(chance, column):
    """A block scalar, mostly one that is read line by line."""
    lines = [chance.choice(("|", ">", "|-", ">-", "|+", ">+", ">-  ", "|2", "| #c"))]
    for _ in range(chance.randrange(4)):
        deeper = chance.choice((2, 2, 2, 2, 2, 4, 1, 0))
        text = chance.choice(("x", "x", "a: |", "- y", "#c", "", "", " ", "x  ", "é"))
        lines.append(" " * (column + deeper) + text if text else "")
    return "\n".join(lines)


def make_line(chance, column):
    likely = chance.random() < 0.8
    key = chance.choice("abcdefgh") if likely else chance.choice(KEYS)
    value = chance.choice(("", "", "x", "1")) if likely else chance.choice(PIECES)
    if chance.random() < 0.15:
        value = make_block(chance, column)
    dash = "- " if likely else chance.choice(("-  ", "- - ", "-", "-\t"))
    tail = "" if likely else chance.choice(TAILS)
    entry = f"{key}: {value}" if value else f"{key}:"
    forms = (entry, entry, f"{key}:", f"{dash}{entry}", f"{dash}{value}", f"#{value}", value)
    return chance.choice(forms) + tail


def make_text(chance):
    """A document whose lines mostly stand where lines may stand."""
    column, lines = 0, [chance.choice(("---", "", "a:", "a:", "a:"))]
    for _ in range(chance.randrange(1, 8)):
        column = max(0, column + chance.choice((0, 0, 0, 0, 2, 2, -2, -4, 1)))
        lines.append(" " * column + make_line(chance, column))
    return "\n".join(lines) + chance.choice(("\n", "\n\n", ""))


@pytest.mark.parametrize("seed", range(4))
def test_documents_made_by_chance_read_as_by_the_full_reader(seed):
    chance = random.Random(seed)
    taken = sum(is_taken_alike(make_text(chance)) for _ in range(2500))
    assert taken > 100


def test_lines_that_are_remembered_hold_nothing_that_changes():
    text = "a: {}\nb: []\nc:\n- {}\n"
    first, second = (read_block_lines(text)[0] for _ in range(2))
    first["a"]["x"] = first["c"][0]["x"] = 1
    first["b"].append(1)
    assert second == {"a": {}, "b": [], "c": [{}]}


def test_more_lines_than_are_remembered_are_read():
    keys = {f"key-{number}": number for number in range(10_000)}
    text = "".join(f"{key}: {number}\n" for key, number in keys.items())
    assert read_block_lines(text) == (keys, 0)


def test_many_heads_of_block_scalars_in_each_other_are_looked_at_once():
    """Would each be looked through to its end, this would take hours."""
    lines = "".join(f"  key-{number}: |\n" for number in range(50_000))
    assert read_block_lines(f"a: |\n{lines}   \n") is None
    assert read_block_lines(f"a: |\n{lines}  \x01\n") is None
    assert read_block_lines(f"a: |\n{lines}") == ({"a": lines.replace("  key", "key")}, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "nginx:1.25", "b": 2.0}', {"a": "nginx:1.25", "b": 2}),
        (
            '{"a":[1e3,1.5],"b":12345678901234567890}',
            {"a": [1000, 1.5], "b": 12345678901234567890.0},
        ),
        ('{"a": "x 2.0, y", "b": 3}', {"a": "x 2.0, y", "b": 3}),
    ],
)
def test_odd_numbers_of_json_are_found_beside_texts(text, value):
    (document,) = iter_documents(f"---\n{text}", "f.json")
    assert spell(document.body) == spell(value)
