"""Completion and help: which words are offered at a place, directly and over the protocol."""

import pytest
from editor_session import EditorSession
from lsprotocol import types

from lictor.editor.cursor import find_cursor
from lictor.editor.field_help import describe_field, list_words

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
spec:
  rules:
  - name: team
    match:
      any:
      - resources:
          kinds:
          - P
    validate:
      failureAction: E
      deny:
        conditions:
          all:
          - key: "{{ len
            operator: E
  - na
"""
LINES = POLICY.split("\n")


@pytest.mark.parametrize(
    ("line", "path", "is_key"),
    [
        (1, ("kind",), False),
        (7, ("spec", "rules", 0, "match"), False),
        (11, ("spec", "rules", 0, "match", "any", 0, "resources", "kinds", 0), True),
        (13, ("spec", "rules", 0, "validate", "failureAction"), False),
        (19, ("spec", "rules", 0), True),
    ],
)
def test_the_path_of_a_place(line, path, is_key) -> None:
    cursor = find_cursor(LINES, line, len(LINES[line]))
    assert (cursor.path, cursor.is_key, cursor.kind) == (path, is_key, "ClusterPolicy")


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        (11, "Pod", "name"),
        (13, "Enforce", "Pod"),
        (17, "length", "Equals"),
        (18, "AnyNotIn", "length"),
        (19, "validate", "length"),
    ],
)
def test_what_is_offered(line, offered, not_offered) -> None:
    words = [each.word for each in list_words(find_cursor(LINES, line, len(LINES[line])))]
    assert offered in words
    assert not_offered not in words


def test_fields_of_kubernetes_objects_are_known() -> None:
    lines = ["apiVersion: apps/v1", "kind: Deployment", "spec:", "  repl"]
    words = {each.word: each.detail for each in list_words(find_cursor(lines, 3, 6))}
    assert words["replicas"] == "int"
    assert describe_field(find_cursor([*lines[:3], "  replicas: 1"], 3, 12)).word == "replicas"


def test_over_the_protocol(tmp_path) -> None:
    editor = EditorSession(tmp_path)
    uri = editor.open("policy.yaml", POLICY)
    document, place = types.TextDocumentIdentifier(uri), types.Position(13, 22)
    answer = editor.wait(
        editor.client.text_document_completion_async(types.CompletionParams(document, place))
    )
    assert {"Audit", "Enforce"} <= {item.label for item in answer}
    place = types.Position(7, 6)
    hover = editor.wait(editor.client.text_document_hover_async(types.HoverParams(document, place)))
    assert "**match**" in hover.contents.value
    assert editor.close() == 0
