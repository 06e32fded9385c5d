"""Where the cursor stands, in whole texts and in such as are still being written."""

import pytest

from lictor.addons.editor.outline import find_cursor
from lictor.core.lang.yaml.build import build_yaml

# The cursor is at the bar.
RULE = ("spec", "rules", 1)
POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: a}
spec:
  rules:
  - name: one
    match:
      any:
      - resources:
          kinds:
          - Pod
  - name: two
    match: {any: [{resources: {kinds: [Pod, $0]}}]}
    preconditions:
      all:
      - key: "{{ request.object.$1
        operator: Equals
        value: x
    validate:
      message: >-
        some text
        {{ req$2
      pattern:
        spec:
          =(containers):
          - =(im$3
            ^(name): x
      $4
"""


def read(text: str):
    before, _, after = text.partition("|^")
    lines = (before + after).split("\n")
    return find_cursor(lines, before.count("\n"), len(before.rpartition("\n")[2]))


def read_policy(number: int):
    text = POLICY.replace(f"${number}", "|^")
    for other in range(5):
        text = text.replace(f"${other}", "")
    return read(text)


@pytest.mark.parametrize(
    ("number", "path", "is_key", "variable"),
    [
        (0, (*RULE, "match", "any", 0, "resources", "kinds", 1), True, None),
        (1, (*RULE, "preconditions", "all", 0, "key"), False, " request.object."),
        (2, (*RULE, "validate", "message"), False, " req"),
        (3, (*RULE, "validate", "pattern", "spec", "=(containers)", 0), True, None),
        (4, (*RULE, "validate"), True, None),
    ],
)
def test_places_of_a_policy_that_is_not_whole(number, path, is_key, variable) -> None:
    cursor = read_policy(number)
    assert (cursor.path, cursor.is_key, cursor.variable) == (path, is_key, variable)
    assert (cursor.api_version, cursor.kind) == ("kyverno.io/v1", "ClusterPolicy")


def test_the_rest_of_a_broken_document_is_known() -> None:
    rules = read_policy(1).body["spec"]["rules"]
    assert rules[1]["match"]["any"][0]["resources"]["kinds"] == ["Pod"]
    assert rules[1]["preconditions"]["all"][0]["operator"] == "Equals"
    assert rules[1]["validate"]["pattern"]["spec"]["=(containers)"]


@pytest.mark.parametrize(
    ("text", "path", "is_key"),
    [
        ("a:\n  b: {c: d, e|^", ("a", "b"), True),
        ("a:\n  b: {c: [{d: |^", ("a", "b", "c", 0, "d"), False),
        ("a: [x, y|^]", ("a", 1), True),
        ("a:\n|^", (), True),
        ("a:\n  |^", ("a",), True),
        ("a:\n- b: 1\n  |^", ("a", 0), True),
        ("a:\n- b: 1\n- |^", ("a", 1), True),
        ("a:\n  - - b: |^", ("a", 0, 0, "b"), False),
        ("a: 'x|^", ("a",), False),
        ("a: {'x|^", ("a",), True),
        ("a: [\n  {b: c},\n  {d|^", ("a", 1), True),
        ("x:\n  text: |\n    one\n    two|^", ("x", "text"), False),
        ("x:\n  text: |\n    one\n  |^", ("x",), True),
        ("a: b\n---\nkind: X\nq: |^", ("q",), False),
        ("a:\n  # |^", (), False),
        ("a: b # c\nd: e\nf: |^", ("f",), False),
    ],
)
def test_places_of_small_texts(text, path, is_key) -> None:
    cursor = read(text)
    assert (cursor.path, cursor.is_key) == (path, is_key)


def test_text_over_several_lines_is_one_text() -> None:
    assert read("a:\n  expression: >-\n    object.x &&\n    object.y.|^").text.split() == [
        *("object.x", "&&", "object.y.")
    ]
    assert read('a:\n  key: "it\\"s {{ one\n    .two.|^').variable == " one .two."


@pytest.mark.parametrize(
    "text",
    [
        POLICY.replace("$1", '"').replace("$2", "}}").replace("=(im$3", "a: b"),
        "a: {b: [c, {d: e}], 'f g': \"h\"}\ni:\n- j\n- k: l\n  m: p\n- - o\n",
        "a: |\n  b: c\n\n  d\ne: f # g\n",
        "a: >-\n  b\n  c\nd: 'it''s'\n",
    ],
)
def test_whole_texts_have_the_fields_that_yaml_gives_them(text) -> None:
    for number in range(5):
        text = text.replace(f"${number}", "")

    def name(value):
        if isinstance(value, dict):
            return {key: name(inner) for key, inner in value.items()}
        return list(map(name, value)) if isinstance(value, list) else str(value).split()

    assert name(find_cursor(text.split("\n"), 0, 0).body) == name(build_yaml(text).body)
