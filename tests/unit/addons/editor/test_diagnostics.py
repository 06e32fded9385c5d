"""Mistakes and fixes in an editor: a client of the protocol, and a real process."""

import pytest
from editor_session import EditorSession, apply_action
from lsprotocol import types

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
          kinds: [Pod]
    validate:
      message: label it
      pattern:
        metadata:
          labels:
            team: "?*"
"""
MISSPELT = POLICY.replace("pattern:", "patern:")
OLD = POLICY.replace("spec:\n", "spec:\n  validationFailureAction: Audit # stays\n")


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    session = EditorSession(tmp_path_factory.mktemp("editor"))
    yield session
    assert session.close() == 0


def test_a_mistake_is_told_with_its_place_and_code(editor) -> None:
    uri = editor.open("misspelt.yaml", MISSPELT)
    found = next(each for each in editor.diagnostics(uri) if each.code == "LIC103")
    assert found.range == types.Range(types.Position(13, 6), types.Position(13, 12))
    assert found.severity == types.DiagnosticSeverity.Error
    assert found.source == "lictor"
    assert found.code_description.href.endswith("/docs/rules/LIC103.md")
    assert 'did you mean "pattern"?' in found.message


def test_what_is_typed_is_told_once_after_a_pause(editor) -> None:
    uri = editor.open("typed.yaml", POLICY)
    assert editor.diagnostics(uri) == []
    place = types.Position(13, 8)
    for letter in "xyz":
        change = types.TextDocumentContentChangePartial(types.Range(place, place), letter)
        editor.change(uri, change)
    assert "LIC103" in [each.code for each in editor.diagnostics(uri)]
    assert [told.version for told in editor.told[uri]] == [1, 4]
    editor.replace(uri, POLICY)
    assert editor.diagnostics(uri) == []


def test_places_are_counted_as_the_protocol_counts(editor) -> None:
    text = POLICY.replace("message: label it", "message: \"\N{GRINNING FACE} {{ lenght('a') }}\"")
    found = editor.diagnostics(editor.open("wide.yaml", text))[0]
    line = text.split("\n")[12]
    units = len(line[: line.index("lenght")].encode("utf-16-le")) // 2
    assert found.code == "LIC403"
    assert found.range.start == types.Position(12, units)


@pytest.mark.parametrize(
    ("name", "text", "codes"),
    [
        ("chart.yaml", "{{ if .Values.on }}\nkind: Pod\n{{ end }}\n", []),
        ("empty.yaml", "", []),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", []),
        ("broken.yaml", POLICY.replace("kinds: [Pod]", "kinds: [Pod"), ["LIC101"]),
    ],
)
def test_other_files_are_left_alone(editor, name, text, codes) -> None:
    assert [each.code for each in editor.diagnostics(editor.open(name, text))] == codes


def test_settings_that_cannot_be_read_are_told(editor) -> None:
    folder = editor.folder / "settings"
    folder.mkdir()
    (folder / "lictor.toml").write_text("[lint]\nselect = ['LIC999']\n")
    uri = editor.open("settings/policy.yaml", POLICY)
    assert "not checked" in editor.diagnostics(uri)[0].message
    (folder / "lictor.toml").write_text("[lint]\nignore = ['LIC103']\n")
    editor.told.pop(uri)
    saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
    editor.tell(editor.client.text_document_did_save, saved)
    assert editor.diagnostics(uri) == []


def test_a_closed_file_has_no_mistakes(editor) -> None:
    uri = editor.open("closed.yaml", MISSPELT)
    assert editor.diagnostics(uri)
    editor.told.pop(uri)
    document = types.TextDocumentIdentifier(uri)
    editor.tell(editor.client.text_document_did_close, types.DidCloseTextDocumentParams(document))
    editor.versions[uri] = None
    assert editor.diagnostics(uri) == []


def test_a_safe_fix_is_preferred_and_puts_the_text_right(editor) -> None:
    uri = editor.open("old.yaml", OLD)
    assert [each.code for each in editor.diagnostics(uri)] == ["LIC112"]
    (action,) = editor.actions(uri, 5)
    assert action.kind == types.CodeActionKind.QuickFix
    assert action.is_preferred
    fixed = apply_action(OLD, action, uri)
    assert "failureAction: Audit" in fixed
    assert "# stays" in fixed
    editor.replace(uri, fixed)
    assert editor.diagnostics(uri) == []
    assert editor.actions(uri, 5) == []


def test_a_guess_is_offered_and_not_preferred(editor) -> None:
    uri = editor.open("guess.yaml", MISSPELT)
    (action,) = editor.actions(uri, 13)
    assert "a guess" in action.title
    assert not action.is_preferred
    assert apply_action(MISSPELT, action, uri) == POLICY


def test_everything_is_put_right_on_request_only(editor) -> None:
    text = OLD.replace("spec:\n", "spec:\n  failurePolicy: Ignore\n")
    uri = editor.open("all.yaml", text)
    (action,) = editor.actions(uri, 0, only=["source.fixAll"])
    assert action.kind == "source.fixAll.lictor"
    editor.replace(uri, apply_action(text, action, uri))
    assert editor.diagnostics(uri) == []
    assert editor.actions(uri, 0, only=["source.fixAll"]) == []


def test_a_test_sees_what_other_open_files_say_now(editor) -> None:
    (editor.folder / "shown.yaml").write_text(POLICY)
    (editor.folder / "plain.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\n"
    )
    test = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\npolicies: [shown.yaml]\n"
        "resources: [plain.yaml]\nresults:\n"
        "- {policy: labels, rule: newer, kind: Pod, resources: [plain], result: fail}\n"
    )
    uri = editor.open("kyverno-test.yaml", test)
    assert "newer" in editor.diagnostics(uri)[0].message
    shown = editor.open("shown.yaml", POLICY.replace("name: team", "name: newer"))
    editor.diagnostics(shown)
    editor.replace(uri, f"{test}\n")
    assert editor.diagnostics(uri) == []
