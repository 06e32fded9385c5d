import pytest
from chainsaw.case import find_cases, read_objects
from chainsaw.durations import parse_seconds
from chainsaw.expectation import find_need, is_expected, read_index
from chainsaw.groups import find_group

TEST = """
apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {name: first}
spec:
  concurrent: false
  timeouts: {delete: 1m}
  steps:
  - name: ready
    use:
      template: /../_templates/ready.yaml
      with: {bindings: [{name: name, value: one}]}
  - try:
    - apply: {file: a.yaml}
"""
TEMPLATE = """
apiVersion: chainsaw.kyverno.io/v1alpha1
kind: StepTemplate
metadata: {name: ready}
spec:
  bindings: [{name: kind, value: Pod}]
  try:
  - assert: {resource: {apiVersion: v1, kind: Pod, metadata: {name: ($name)}}}
"""
SETTINGS = """
apiVersion: chainsaw.kyverno.io/v1alpha2
kind: Configuration
metadata: {name: configuration}
spec:
  cleanup: {delayBeforeCleanup: 3s}
  execution: {forceTerminationGracePeriod: 5s}
  timeouts: {apply: 10s, assert: 1m30s}
"""


@pytest.fixture
def root(tmp_path):
    for path, text in {
        "_templates/ready.yaml": TEMPLATE,
        "folder/.chainsaw.yaml": SETTINGS,
        "folder/chainsaw-test.yaml": TEST,
        "folder/a.yaml": "apiVersion: v1\nkind: List\nitems: [{kind: A}, {kind: B}]\n---\nkind: C\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_case_with_its_template_and_settings(root):
    [case] = find_cases(root)
    assert (case.path, case.name, case.concurrent, case.group) == (
        "folder", "first", False, "folder",
    )  # fmt: skip
    ready, plain = case.steps
    assert [each["name"] for each in ready.bindings] == ["kind", "name"]
    assert [list(each) for each in ready.tries] == [["assert"]]
    assert plain.name == "step-2"
    assert case.settings.timeouts["apply"] == 10
    assert case.settings.timeouts["assert"] == 90
    assert case.settings.timeouts["delete"] == 60
    assert case.settings.timeouts["error"] == 30
    assert (case.settings.grace, case.settings.delay_before_cleanup) == (5, 3)


def test_case_whose_template_is_not_there(root):
    (root / "_templates/ready.yaml").unlink()
    [case] = find_cases(root)
    assert "ready.yaml" in case.fault
    assert not is_expected(case, {})


def test_lists_are_taken_apart(root):
    assert [each["kind"] for each in read_objects(root / "folder/a.yaml")] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("1m30s", 90), ("250ms", 0.25), ("1h", 3600), ("1.5s", 1.5)]
)
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5s ", "x5s", "5d"])
def test_not_durations(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("folder", "group"),
    [
        ("validate/a/b", "standard"),
        ("policy-exceptions-disabled/a", "default"),
        ("generate-mutating-admission-policy-alpha/a", "generate-mutating-admission-policy"),
        ("tls-certificates/ecdsa-self-signed", "ecdsa"),
        ("tls-certificates/rsa-cert-manager", "standard"),
    ],
)
def test_flags_by_folder(tmp_path, folder, group):
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / "chainsaw-test.yaml").write_text("metadata: {name: a}\nspec: {steps: []}\n")
    [case] = find_cases(tmp_path)
    assert find_group(case).name == group


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("kind: ConfigMap\n", None),
        ("spec:\n  rules:\n  - verifyImages:\n    - a: b\n", None),
        ("spec:\n  rules:\n  - verifyImages:\n    - a: b\n---\nkind: Pod\n", "a registry"),
        ("context:\n- name: a\n  imageRegistry:\n    reference: b\n", "a registry"),
        ("kind: ImageValidatingPolicy\n", None),
        ("kind: ImageValidatingPolicy\n---\nkind: Pod\n", "a registry"),
        ("# kubectl -n a logs deploy/b\n", "running containers"),
        ("status: {readyReplicas: 1}\n", "running containers"),
    ],
)
def test_needs(root, text, need):
    (root / "folder/more.yaml").write_text(text)
    [case] = find_cases(root)
    assert find_need(case) == need


def test_index_decides_where_it_names_the_folder(root, tmp_path):
    [case] = find_cases(root)
    file = tmp_path / "index.jsonl"
    file.write_text('{"test": "folder", "status": "failed", "seconds": 1}\n')
    assert read_index(file) == {"folder": False}
    assert not is_expected(case, {"folder": False})
    assert is_expected(case, {"folder": True})
    assert not is_expected(case, {"folder/other": True})
    assert is_expected(case, {"elsewhere/a": True})
    assert read_index(tmp_path / "absent.jsonl") == {}
