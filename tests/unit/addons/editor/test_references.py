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
    - name: nodes
      globalReference: {name: all-nodes}
    validate:
      message: "{{ teams.data.list }} {{ length(nodes) }}"
      pattern: {metadata: {labels: {team: "?*"}}}
"""
OTHER = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: another
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no, pattern: {metadata: {labels: {owner: "?*"}}}}
"""
IN_CEL = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: nodes
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  variables:
  - name: nodes
    expression: globalContext.Get("all-nodes", "")
  - name: teams
    expression: resource.Get("v1", "configmaps", "shop", "known-teams")
  validations:
  - expression: variables.nodes.size() > 0
"""
ENTRY = "apiVersion: kyverno.io/v2alpha1\nkind: GlobalContextEntry\nmetadata:\n  name: all-nodes\n"
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
        "another.yaml": OTHER,
        "entries.yaml": ENTRY,
        "exception.yaml": EXCEPTION,
        "policy.yaml": POLICY,
        "tests/kyverno-test.yaml": TEST,
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
        ("policy.yaml", POLICY, "all-nodes", ("entries.yaml", 3)),
        ("policy.yaml", POLICY, "teams.data", ("policy.yaml", 10)),
        ("policy.yaml", POLICY, "nodes) }}", ("policy.yaml", 14)),
        ("cel.yaml", IN_CEL, "all-nodes", ("entries.yaml", 3)),
        ("cel.yaml", IN_CEL, "known-teams", ("teams.yaml", 3)),
        ("cel.yaml", IN_CEL, "variables.nodes", ("cel.yaml", 9)),
        ("exception.yaml", EXCEPTION, "labels", ("policy.yaml", 4)),
        ("exception.yaml", EXCEPTION, "autogen-team", ("policy.yaml", 7)),
        ("tests/kyverno-test.yaml", TEST, "../policy.yaml", ("policy.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "pod.yaml", ("pod.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "values.yaml", ("values.yaml", 0)),
        ("tests/kyverno-test.yaml", TEST, "labels", ("policy.yaml", 4)),
        ("tests/kyverno-test.yaml", TEST, "team", ("policy.yaml", 7)),
        ("tests/kyverno-test.yaml", TEST, "web", ("pod.yaml", 3)),
        ("policy.yaml", POLICY, "ClusterPolicy", None),
        ("vain.yaml", EXCEPTION.replace("labels", "absent"), "absent", None),
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


@pytest.mark.parametrize(
    ("text", "word", "uses"),
    [
        (POLICY, "labels\n", {("exception.yaml", 5), ("kyverno-test.yaml", 8)}),
        (POLICY, "team\n", {("exception.yaml", 7), ("kyverno-test.yaml", 9)}),
        (OTHER, "team\n", set()),
        (CONFIG_MAP, "known-teams", {("policy.yaml", 12)}),
        (ENTRY, "all-nodes", {("policy.yaml", 15)}),
    ],
)
def test_names_lead_to_who_uses_them(editor, text, word, uses) -> None:
    lines = text[: text.index(word) + 1].split("\n")
    place = types.Position(len(lines) - 1, len(lines[-1]))
    document = types.TextDocumentIdentifier(editor.open("here.yaml", text))
    params = types.ReferenceParams(types.ReferenceContext(False), document, place)  # noqa: FBT003
    found = editor.wait(editor.client.text_document_references_async(params))
    assert {(use.uri.rpartition("/")[2], use.range.start.line) for use in found} == uses


def test_the_outline_of_a_file(editor) -> None:
    document = types.TextDocumentIdentifier(editor.open("all.yaml", f"{POLICY}---\n{IN_CEL}"))
    params = types.DocumentSymbolParams(document)
    found = editor.wait(editor.client.text_document_document_symbol_async(params))
    assert [(each.name, each.detail) for each in found] == [
        ("labels", "ClusterPolicy"),
        ("nodes", "ValidatingPolicy"),
    ]
    (rule,) = found[0].children
    assert (rule.name, rule.range.start.line) == ("team", 7)
    assert rule.range.end.line == POLICY.count("\n") - 1
    assert [each.name for each in rule.children] == ["teams", "nodes"]
    assert [each.name for each in found[1].children] == ["nodes", "teams", "validations 0"]


async def take_first(shown):
    while not shown:  # noqa: ASYNC110  (nobody sets an event)
        await asyncio.sleep(0.01)
    return shown.pop(0)
