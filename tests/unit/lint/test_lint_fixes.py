"""What `lint --fix` writes: the text around a fix stays as it was, and a second run changes nothing."""

import pytest

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.lint.documents import read_file
from lictor.lint.fixes import fix_text
from lictor.lint.run import lint_texts

HEAD = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels   # ours
"""
RULE = """\
  rules:
  # the only one
  - name: team
    match:
      any:
      - resources:
          kinds: [Pod]
    validate:
{action}      message: label it
      pattern:
        metadata:
          name: "?*"
"""
PLAIN = RULE.format(action="")


def fix(text, *, unsafe=False):
    content = text.encode() if isinstance(text, str) else text
    for _ in range(3):
        report = lint_texts([("a.yaml", content)], FILE_RECORDS)
        content = fix_text(read_file("a.yaml", content), report.findings, unsafe=unsafe)
    return content.decode()


def check(before, after, *, unsafe=False):
    assert fix(before, unsafe=unsafe) == after
    assert fix(after, unsafe=unsafe) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  validationFailureAction: enforce\n" + PLAIN, RULE.format(action="      failureAction: Enforce\n")),
        (
            "  validationFailureAction: Audit  # for now\n" + PLAIN,
            "  # for now\n" + RULE.format(action="      failureAction: Audit\n"),
        ),
        (
            "  validationFailureAction: Audit\n" + RULE.format(action="      failureAction: Enforce\n"),
            RULE.format(action="      failureAction: Enforce\n"),
        ),
        ("  failurePolicy: Ignore\n" + PLAIN, "  webhookConfiguration: {failurePolicy: Ignore}\n" + PLAIN),
        (
            "  failurePolicy: Ignore\n  webhookTimeoutSeconds: 7 # enough\n" + PLAIN,
            "  webhookConfiguration: {timeoutSeconds: 7, failurePolicy: Ignore}\n  # enough\n" + PLAIN,
        ),
        ("  schemaValidation: false\n" + PLAIN, PLAIN),
    ],
)  # fmt: skip
def test_fields_that_were_replaced(before, after):
    check(f"{HEAD}spec:\n{before}", f"{HEAD}spec:\n{after}")


def test_maps_in_braces():
    before = HEAD + (
        "spec: {validationFailureAction: Enforce, rules: [{name: a, match: {any: [{resources: "
        "{kinds: [Pod]}}]}, validate: {message: no, deny: {}}}]}\n"
    )
    after = before.replace("validationFailureAction: Enforce, ", "").replace(
        "validate: {", "validate: {failureAction: Enforce, "
    )
    check(before, after)


def test_generate_rules_get_the_switch():
    rule = """\
  rules:
  - name: a
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      SWITCHapiVersion: v1
      kind: ConfigMap
      name: x
      namespace: "{{ request.object.metadata.name }}"
      data: {}
"""
    before = f"{HEAD}spec:\n  generateExisting: true\n{rule.replace('SWITCH', '')}"
    after = f"{HEAD}spec:\n{rule.replace('SWITCH', 'generateExisting: true' + chr(10) + '      ')}"
    check(before, after)


def test_operators_that_are_the_same():
    condition = """\
    preconditions:
      all:
      - {{key: "{{{{ request.operation }}}}", operator: {operator}, value: CREATE}}
    validate:
"""
    text = HEAD + "spec:\n" + PLAIN.replace("    validate:\n", condition)
    check(text.format(operator="Equal"), text.format(operator="Equals"))
    # Others judge lists and wildcards otherwise: that is for people to decide.
    assert fix(text.format(operator="In")) == text.format(operator="In")


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("{{ request.name }}", '"{{ request.name }}"'),
        ('{{ to_upper("a") }}', "'{{ to_upper(\"a\") }}'"),
        ("{{ a }}/{{ b }}", '"{{ a }}/{{ b }}"'),
    ],
)
def test_expressions_get_quotes(written, quoted):
    text = f"{HEAD}spec:\n" + PLAIN.replace("message: label it", "message: WORDS")
    check(text.replace("WORDS", written), text.replace("WORDS", quoted))


def test_guesses_are_made_on_request_only():
    wrong = f"{HEAD}spec:\n" + PLAIN.replace("message:", "mesage:")
    assert fix(wrong) == wrong
    check(wrong, f"{HEAD}spec:\n{PLAIN}", unsafe=True)
    called = f"{HEAD}spec:\n" + PLAIN.replace("label it", '"{{ to_uper(request.name) }}"')
    check(called, called.replace("to_uper", "to_upper"), unsafe=True)


def test_shared_parts_are_left_alone():
    text = HEAD.replace("metadata:", "metadata: &m") + (
        "spec:\n  validationFailureAction: Enforce\n" + PLAIN.replace('metadata:\n          name: "?*"', "metadata: *m")
    )  # fmt: skip
    assert fix(text) == text


def test_line_ends_and_marks_stay():
    before = f"{HEAD}spec:\n  schemaValidation: false\n{PLAIN}"
    after = f"{HEAD}spec:\n{PLAIN}"
    assert fix(before.replace("\n", "\r\n")) == after.replace("\n", "\r\n")
    assert fix("\ufeff" + before) == "\ufeff" + after
    assert fix(before.removesuffix("\n")) == after.removesuffix("\n")


def test_only_the_document_of_the_finding_changes():
    old = f"{HEAD}spec:\n  validationFailureAction: Enforce\n{PLAIN}"
    new = HEAD + "spec:\n" + RULE.format(action="      failureAction: Enforce\n")
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {validationFailureAction: Audit}\n"
    check(
        f"# one\n---\n{other}---\n{old}---\n{other}", f"# one\n---\n{other}---\n{new}---\n{other}"
    )


MATCHED = """\
spec:
  rules:
  - name: check
    match: {any: [{resources: {kinds: [Pod]}}]}
"""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("    validate: {message: no, pattern: {spec: {=(hostNetwrk): false}}}\n", "hostNetwork"),
        ('    validate: {message: no, pattern: {spec: {"hostNetwrk": false}}}\n', "hostNetwork"),
        ("    validate:\n      message: no\n      pattern:\n        spec:\n          hostNetwrk: false # never\n", "hostNetwork"),
        ('    validate: {message: "{{ request.object.spec.hostNetwrk }}", deny: {}}\n', "hostNetwork"),
        ("    validate: {message: no, cel: {expressions: [{expression: \"!object.spec.hostNetwrk\"}]}}\n", "hostNetwork"),
        ("    validate: {message: no, cel: {expressions: [{expression: \"!object.spec.?hostNetwrk.orValue(false)\"}]}}\n", "hostNetwork"),
        ("    mutate:\n      patchesJson6902: |-\n        - {op: add, path: /spec/hostNetwrk, value: false}\n", "hostNetwork"),
        ("    mutate: {patchStrategicMerge: {spec: {+(hostNetwrk): false}}}\n", "hostNetwork"),
    ],
)  # fmt: skip
def test_fields_that_are_nearly_one_of_the_kind(wrong, right):
    before = HEAD + MATCHED + wrong
    assert fix(before) == before
    check(before, before.replace("hostNetwrk", right), unsafe=True)


@pytest.mark.parametrize(
    "pattern",
    [
        # Two are near: hostPID and hostIPC. None is near. The right one stands there already.
        "{hostPIC: false}",
        "{nodes: x}",
        "{hostNetwrk: false, hostNetwork: true}",
        "{hostNetwrk: false, =(hostNetwork): true}",
    ],
)
def test_fields_that_may_be_any(pattern):
    text = HEAD + MATCHED + f"    validate: {{message: no, pattern: {{spec: {pattern}}}}}\n"
    assert fix(text, unsafe=True) == text


@pytest.mark.parametrize(
    "expression",
    [
        "applyConfiguration: {expression: 'Object{spec: Object.spec{hostNetwrk: true}}'}",
        """jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/hostNetwrk", value: true}]'}""",
        """applyConfiguration: {expression: 'Object{spec: {"hostNetwrk": true}}'}""",
    ],
)
def test_fields_of_objects_that_expressions_write(expression):
    kind = "JSONPatch" if expression.startswith("json") else "ApplyConfiguration"
    before = f"""\
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {{name: network}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  mutations:
  - patchType: {kind}
    {expression}
"""
    check(before, before.replace("hostNetwrk", "hostNetwork"), unsafe=True)
