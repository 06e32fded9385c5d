"""Completion and help: which words are offered at a place, directly and over the protocol."""

import pytest
from editor_session import EditorSession
from lsprotocol import types

from lictor.addons.editor.field_help import describe_word, list_words
from lictor.addons.editor.outline import find_cursor
from lictor.addons.editor.workspace_files import WorkspaceFiles

# One place of each sort; `$NAME` is where a cursor may be.
CLASSIC = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod, $flow_kind]}}]}
    context:
    - name: teams
      configMap: {name: teams, namespace: shop}
    preconditions:
      all:
      - key: "{{ request.object.spec.$jmespath"
        operator: E$operator
        value: "{{ teams.$config_map }}"
    validate:
      failureAction: $action
      allowExistingViolations: $flag
      message: "{{ length(request.userInfo.$caller) }}"
      pattern:
        spec:
          =(containers):
          - ^(im$anchor
            imagePullPolicy: $enum
      podSecurity:
        exclude:
        - controlName: $literal
      foreach:
      - list: request.object.spec.containers
        preconditions:
          any:
          - {key: "{{ element.$element", oper$flow_field: Equals}
        pattern:
          securityContext: {$element_field}
      cel:
        expressions:
        - expression: object.spec.$rule_cel
  - name: deployments
    match:
      any:
      - resources:
          kinds:
          - $block_kind
          - apps/v1/Deployment
          operations: [$operation]
    mutate:
      targets:
      - apiVersion: $target_version
        kind: Namespace
      patchStrategicMerge:
        metadata:
          $patch
  - name: pointers
    match: {any: [{resources: {kinds: [Deployment]}}]}
    mutate:
      patchesJson6902: |-
        - op: add
          path: /spec/template/spec/containers/0/$pointer
          value: x
  - name: generated
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      kind: ConfigMap
      apiVersion: v1
      data:
        $data
      cloneList:
        kinds: [$clone_kind]
    $in_rule
"""
IN_CEL = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: replicas
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [$resource]}
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
  variables:
  - name: containers
    expression: object.spec.template.spec.containers
  validationActions: [$validation_action]
  validations:
  - message: no
    expression: >-
      true &&
      EXPRESSION
"""
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
results:
- $result
"""
OBJECT = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 1\n  $field\n"
CUSTOM = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: custom}
spec:
  rules:
  - name: custom
    match: {any: [{resources: {kinds: [$custom_kind]}}]}
    validate:
      pattern: {spec: {$nothing}}
  - name: other
    match: {any: [{resources: {kinds: [Widget]}}]}
    validate:
      message: "{{ request.object.spec.$custom_path }}"
      pattern:
        spec:
          colour: $custom_enum
          $custom_field
"""
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example}
spec:
  group: shop.example
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, enum: [red, green], description: What people see.}
"""


def cut(text: str, name: str) -> tuple[list[str], int, int]:
    """The lines without marks, and line and column of one of them."""
    marks = sorted({word for word in text.replace("$", " $").split() if word.startswith("$")})
    for mark in marks:
        clean = "$" + "".join(letter for letter in mark[1:] if letter.isalpha() or letter == "_")
        text = text.replace(clean, "\0" if clean == f"${name}" else "", 1)
    before, _, after = text.partition("\0")
    return (
        (before + after).split("\n"),
        before.count("\n"),
        len(before.rpartition("\n")[2]),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "widgets.yaml").write_text(DEFINITION)
    found = WorkspaceFiles(lambda _: None)
    found.set_root(str(folder))
    return found


def offer(text: str, name: str, files: WorkspaceFiles) -> dict[str, str]:
    cursor = find_cursor(*cut(text, name))
    return {each.word: each.detail for each in list_words(cursor, files)}


@pytest.mark.parametrize(
    ("text", "name", "offered", "detail", "not_offered"),
    [
        (CLASSIC, "flow_kind", "Deployment", "apps/v1", "name"),
        (CLASSIC, "block_kind", "Pod", "v1", "name"),
        (CLASSIC, "clone_kind", "v1/Secret", "", "Secret"),
        (CLASSIC, "jmespath", "hostNetwork", "boolean", "length"),
        (CLASSIC, "operator", "AnyNotIn", "operator", "length"),
        (CLASSIC, "config_map", "data", "map of string", "request"),
        (CLASSIC, "action", "Enforce", "", "Pod"),
        (CLASSIC, "flag", "true", "", "Enforce"),
        (CLASSIC, "caller", "username", "string", "object"),
        (CLASSIC, "anchor", "image", "string", "hostNetwork"),
        (CLASSIC, "enum", "IfNotPresent", "", "image"),
        (CLASSIC, "literal", "Host Namespaces", "", "images"),
        (CLASSIC, "element", "imagePullPolicy", "string: Always, IfNotPresent, Never", "spec"),
        (CLASSIC, "flow_field", "operator", "string", "oper"),
        (CLASSIC, "element_field", "runAsNonRoot", "boolean", "containers"),
        (CLASSIC, "rule_cel", "containers", "list of object", "length"),
        (CLASSIC, "operation", "CONNECT", "", "Pod"),
        (CLASSIC, "target_version", "v1", "Namespace", "apps/v1"),
        (CLASSIC, "patch", "annotations", "map of string", "name:"),
        (CLASSIC, "pointer", "image", "string", "containers"),
        (CLASSIC, "data", "binaryData", "map of string", "spec"),
        (CLASSIC, "in_rule", "validate", "object", "spec"),
        (IN_CEL, "resource", "statefulsets", "apps/v1 StatefulSet", "pod"),
        (IN_CEL, "validation_action", "Audit", "", "Enforce"),
        (TEST, "result", "patchedResources", "string", "rules"),
        ("$nothing", "nothing", "apiVersion", "string", "rules"),
        ("kind: ClusterPolicy\n$head", "head", "apiVersion", "string", "rules"),
        (
            CLASSIC.replace("  name: labels", "  annotations:\n    poli$note"),
            "note",
            "policies.kyverno.io/severity",
            "annotation",
            "name",
        ),
        (CLASSIC.replace("- op: add", "- o$step"), "step", "path", "JSON patch", "spec"),
        (
            CLASSIC.replace("imagePullPolicy: $enum", "resources: {limits: {$amount}}"),
            "amount",
            "memory",
            "quantity",
            "image",
        ),
        (
            CUSTOM.replace("[Widget]", "[Gadget]").replace("object.spec.", "object."),
            "custom_path",
            "spec",
            "any value",
            "colour",
        ),
        (OBJECT, "field", "minReadySeconds", "integer", "containers"),
        (CUSTOM, "custom_kind", "Widget", "shop.example/v1", "colour"),
        (CUSTOM, "custom_field", "colour", "string: red, green", "containers"),
        (CUSTOM, "custom_path", "colour", "string: red, green", "containers"),
        (CUSTOM, "custom_enum", "green", "", "colour"),
    ],
)
def test_what_is_offered(files, text, name, offered, detail, not_offered) -> None:
    words = offer(text, name, files)
    assert words[offered] == detail
    assert not_offered not in words


@pytest.mark.parametrize(
    ("expression", "offered", "not_offered"),
    [
        ("", ["object", "variables", "has", "quantity", "json.unmarshal"], "spec"),
        ("variables.", ["containers"], "object"),
        ("object.", ["metadata", "spec"], "all"),
        ("object.spec.repl", ["replicas"], "object"),
        ("object.spec.template.spec.containers.", ["all", "exists", "size"], "image"),
        ("object.spec.template.spec.containers[0].", ["image"], "all"),
        ("object.spec.template.spec.containers.all(c, ", ["c", "object"], "imagePullPolicy"),
        ("object.spec.template.spec.containers.all(c, c.", ["image"], "c"),
        ("variables.containers.map(a, a.ports.exists(p, p.", ["containerPort"], "image"),
        ("variables.containers.filter(x, x.image.", ["startsWith", "matches"], "all"),
        ("object.?spec.?template.", ["metadata"], "image"),
        ("object.metadata.labels.", ["all", "exists"], "startsWith"),
        ("quantity('1Gi').", ["isGreaterThan"], "startsWith"),
        ("object.kind == 'Pod' ? object.", ["spec"], "object"),
        ("duration('1h').", ["getMinutes"], "startsWith"),
        ("json.", ["unmarshal", "marshal"], "get"),
        ("request.userInfo.", ["username", "groups"], "object"),
        ("(object.spec.replicas > 1 ? object.metadata.name : 'a').", ["lowerAscii"], "all"),
    ],
)
def test_what_is_offered_in_cel(files, expression, offered, not_offered) -> None:
    check_cel(files, IN_CEL, expression, offered, not_offered)


def check_cel(files, text, expression, offered, not_offered) -> None:
    words = offer(text.replace("EXPRESSION", f"{expression}$here"), "here", files)
    assert set(offered) <= set(words)
    assert not_offered not in words


@pytest.mark.parametrize(
    ("expression", "offered", "not_offered"),
    [
        ("Object{", ["spec", "metadata"], "object"),
        ("Object{spec: Object.spec{rep", ["replicas", "template"], "object"),
        ("Object{spec: Object.spec.", ["template"], "image"),
        ("Object{spec: Object.spec{replicas: 1, ", ["template"], "object"),
        ("Object{spec: Object.spec{replicas: ", ["object", "int"], "template"),
        ("[JSONPatch{op: 'add', ", ["path", "value"], "object"),
    ],
)
def test_what_is_offered_in_new_objects(files, expression, offered, not_offered) -> None:
    text = IN_CEL.replace("kind: ValidatingPolicy", "kind: MutatingPolicy")
    text = f"{text[: text.index('  validationActions')]}  mutations:\n  - jsonPatch:\n      expression: >-\n        EXPRESSION\n"
    check_cel(files, text, expression, offered, not_offered)


@pytest.mark.parametrize(
    ("query", "offered", "not_offered"),
    [
        ("re", ["request", "images", "length", "teams"], "element"),
        ("request.", ["object", "operation"], "length"),
        ("request.object.spec.containers[].", ["image"], "spec"),
        ("request.object.spec.containers[?name=='x'].", ["image"], "spec"),
        ("request.object.spec.containers[?sec", ["securityContext", "length"], "request"),
        ("request.object.spec.containers[?!securityContext.", ["privileged"], "image"),
        ("length(request.object.spec.", ["containers"], "image"),
        ("request.object.spec.containers | [0].", ["image"], "containers"),
        ("request.object.metadata.name || request.object.", ["spec"], "containers"),
        ("images.containers.*.", ["registry", "tag"], "image"),
        ("request.object.spec.containers[].{a: image, b: ", ["image"], "request"),
    ],
)
def test_what_is_offered_in_jmespath(files, query, offered, not_offered) -> None:
    text = CLASSIC.replace("length(request.userInfo.$caller) }}", f"{query}$here }}}}")
    words = offer(text, "here", files)
    assert set(offered) <= set(words)
    assert not_offered not in words


@pytest.mark.parametrize(
    ("text", "word", "detail", "note", "example"),
    [
        (CLASSIC, "preconditions:", "object", "skipped unless", "operator: NotEquals"),
        (CLASSIC, "operator:", "string", "How it is compared", "operator: GreaterThan"),
        (CLASSIC, "allowExistingViolations:", "boolean, default true", "already fails", ""),
        (CLASSIC, "imagePullPolicy:", "string: Always", "", "imagePullPolicy: Always"),
        (CLASSIC, "kinds:", "list of string", "apps/v1/Deployment", "kinds: [Pod"),
        (CLASSIC, "length", "length(string|array|object) number", "counts", ""),
        (CLASSIC, "userInfo", "object", "who asks", ""),
        (IN_CEL, "matchConstraints:", "object", "Which requests", "resourceRules"),
        (CUSTOM, "colour:", "string: red, green", "What people see.", "colour: red"),
        (OBJECT, "replicas:", "integer", "", "replicas: 1"),
    ],
)
def test_what_a_word_is(files, text, word, detail, note, example) -> None:
    lines, _, _ = cut(text, "")
    line = next(number for number, content in enumerate(lines) if word in content)
    column = lines[line].index(word) + len(word)
    found = describe_word(find_cursor(lines, line, column), files)
    assert found.word == word.rstrip(":")
    assert found.detail.startswith(detail)
    assert note in found.note
    assert example in found.example


@pytest.mark.parametrize(
    ("expression", "word", "told"),
    [
        ("object.spec.replicas", "replicas", "number"),
        ("variables.containers", "containers", "list of object"),
        ("quantity", "quantity", "quantity(string) -> Quantity"),
        ("object.spec.template.spec.containers.all", "all", ".all(x, condition) -> bool"),
        ("object.spec.replicaz", None, ""),
    ],
)
def test_what_a_word_of_cel_is(files, expression, word, told) -> None:
    cursor = find_cursor(*cut(IN_CEL.replace("EXPRESSION", f"{expression}$here"), "here"))
    found = describe_word(cursor, files)
    assert (found and found.word) == word
    assert found is None or found.detail.startswith(told)


def test_over_the_protocol(tmp_path) -> None:
    (tmp_path / "widgets.yaml").write_text(DEFINITION)
    editor = EditorSession(tmp_path)
    lines, line, column = cut(CUSTOM, "custom_field")
    uri = editor.open("policy.yaml", "\n".join(lines))
    document, place = types.TextDocumentIdentifier(uri), types.Position(line, column)
    answer = editor.wait(
        editor.client.text_document_completion_async(types.CompletionParams(document, place))
    )
    (item,) = answer
    assert (item.label, item.detail) == ("colour", "string: red, green")
    assert item.text_edit.range == types.Range(place, place)
    assert "What people see." in item.documentation.value
    place = types.Position(7, 6)
    hover = editor.wait(editor.client.text_document_hover_async(types.HoverParams(document, place)))
    assert hover.contents.value.startswith("**validate**: object\n\nCheck the resource.")
    assert "```yaml\nvalidate:" in hover.contents.value
    assert editor.close() == 0
