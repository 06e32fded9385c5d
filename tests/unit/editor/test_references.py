"""From a name to what it stands for, and tests that run from the editor: the real server."""

import asyncio

import pytest
from editor_session import EditorSession
from lsprotocol import types

POLICY = """\
# Ours.
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: teams
      configMap:
        name: known-teams
        namespace: shop
    validate:
      message: "{{ teams.data.list }}"
      pattern: {metadata: {labels: {team: "?*"}}}
"""
EXCEPTION = """\
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: a, namespace: shop}
spec:
  exceptions:
  - policyName: labels
    ruleNames:
    - autogen-team
  match: {any: [{resources: {kinds: [Pod], names: [web]}}]}
"""
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: labels}
policies:
- ../policy.yaml
resources:
- pod.yaml
results:
- policy: labels
  rule: team
  kind: Pod
  resources:
  - web
  result: RESULT
variables: values.yaml
"""
VALUES = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
globalValues: {request.operation: CREATE}
policies:
- {name: labels, rules: [{name: team, values: {teams.data.list: a}}]}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels: {team: a}\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: known-teams\n  namespace: shop\n"


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    (folder / "tests").mkdir()
    for name, text in {
        "policy.yaml": POLICY,
        "tests/pod.yaml": POD,
        "tests/values.yaml": VALUES,
        "teams.yaml": CONFIG_MAP,
        "broken.yaml": "known-teams: [labels",
    }.items():
        (folder / name).write_text(text)
    session = EditorSession(folder)
    yield session
    assert session.close() == 0


def follow(editor, uri, text, word):
    """Go to the definition of the last place of a word."""
    lines = text.split("\n")
    line = max(number for number, content in enumerate(lines) if word in content)
    place = types.Position(line, lines[line].rindex(word) + 1)
    params = types.DefinitionParams(types.TextDocumentIdentifier(uri), place)
    found = editor.wait(editor.client.text_document_definition_async(params))
    return None if found is None else (found.uri.rpartition("/")[2], found.range.start.line)


@pytest.mark.parametrize(
    ("name", "text", "word", "target"),
    [
        ("policy.yaml", POLICY, "known-teams", ("teams.yaml", 3)),
        ("exception.yaml", EXCEPTION, "labels", ("policy.yaml", 4)),
        ("exception.yaml", EXCEPTION, "autogen-team", ("policy.yaml", 7)),
        ("tests/kyverno-test.yaml", TEST, "../policy.yaml", ("policy.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "pod.yaml", ("pod.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "values.yaml", ("values.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "labels", ("policy.yaml", 4)),
        ("tests/kyverno-test.yaml", TEST, "team", ("policy.yaml", 7)),
        ("tests/kyverno-test.yaml", TEST, "web", ("pod.yaml", 3)),
        ("policy.yaml", POLICY, "ClusterPolicy", None),
        ("exception.yaml", EXCEPTION.replace("labels", "absent"), "absent", None),
    ],
)
def test_names_lead_to_what_they_stand_for(editor, name, text, word, target) -> None:
    assert follow(editor, editor.open(name, text), text, word) == target


@pytest.mark.parametrize(
    ("result", "kind", "summary"),
    [
        ("pass", types.MessageType.Info, "1 tests passed and 0 tests failed"),
        ("fail", types.MessageType.Error, "0 tests passed and 1 tests failed"),
    ],
)
def test_a_test_runs_from_its_lens(editor, result, kind, summary) -> None:
    text = TEST.replace("RESULT", result)
    (editor.folder / "tests" / "kyverno-test.yaml").write_text(text)
    uri = editor.open("tests/kyverno-test.yaml", text)
    document = types.TextDocumentIdentifier(uri)
    lenses = editor.wait(
        editor.client.text_document_code_lens_async(types.CodeLensParams(document))
    )
    assert [(lens.range.start.line, lens.command.title) for lens in lenses] == [
        (1, "run this test")
    ]
    shown = editor.listen(types.WINDOW_SHOW_MESSAGE)
    command = lenses[0].command
    params = types.ExecuteCommandParams(command.command, arguments=command.arguments)
    editor.wait(editor.client.workspace_execute_command_async(params))
    told = editor.wait(take_first(shown))
    assert told.type == kind
    assert summary in told.message


async def take_first(shown):
    while not shown:  # noqa: ASYNC110  (nobody sets an event)
        await asyncio.sleep(0.01)
    return shown.pop(0)
