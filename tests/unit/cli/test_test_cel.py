"""`test` with policies in CEL: what rows are about, and when a silent policy is found missing."""

import pytest

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{expression: "has(object.metadata.labels)"}]
"""
SELECTING = POLICY.replace(
    "  matchConstraints:\n", "  matchConstraints:\n    objectSelector: {matchLabels: {a: b}}\n"
)
PODS = POLICY.replace("configmaps", "pods")
TWO_RULES = POLICY.replace(
    "  validations:",
    '    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}\n'
    "  validations:",
)
MUTATIONS = "\n---\n".join(
    f"""
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{"{name}": "x"}}}}}}'}}
"""
    for name in ("first", "second")
)
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, labels: {a: b}}\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: m}\n"
TEST = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [resource.yaml]
results:
- {policy: POLICY, resources: [m], EXTRA}
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(policy, resource, name="owner", extra="kind: X", **files):
        (tmp_path / "policy.yaml").write_text(policy)
        (tmp_path / "resource.yaml").write_text(resource)
        for file, text in files.items():
            (tmp_path / f"{file}.yaml").write_text(text)
        extra = extra if "result:" in extra else f"{extra}, result: pass"
        test = TEST.replace("POLICY", name).replace("EXTRA", extra)
        (tmp_path / "kyverno-test.yaml").write_text(test)
        code = run(["test", "."])
        return code, capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("policy", "resource", "code", "reason"),
    [
        (POLICY, MAP, 0, "Ok"),
        # A policy that names one resource, and another one: that is a mistake in the test.
        (POLICY, SERVICE, 1, "Not found"),
        # A policy that chooses: then it is one of those that it leaves out.
        (SELECTING, SERVICE, 0, "Excluded"),
        (TWO_RULES, SERVICE, 0, "Excluded"),
        # One about Pods is also about many controllers.
        (PODS, SERVICE, 0, "Excluded"),
        (POLICY.replace("ValidatingPolicy", "GeneratingPolicy").replace(
            "validations: [{expression: \"has(object.metadata.labels)\"}]", "generate: []"), SERVICE, 1, "Not found"),
    ],
)  # fmt: skip
def test_silent_policies(check, policy, resource, code, reason):
    given, out = check(policy, resource)
    assert given == code
    assert f"│ {reason} " in out


@pytest.mark.parametrize("result", ["fail", "warn", "error"])
def test_a_resource_that_a_policy_leaves_out_fulfils_no_other_result(check, result):
    code, out = check(SELECTING, SERVICE, extra=f"kind: X, result: {result}")
    assert (code, f"│ Want {result}, got Excluded " in out) == (1, True)


def test_a_resource_that_a_policy_leaves_out_is_not_counted_as_passed(check):
    code, out = check(SELECTING, SERVICE)
    assert code == 0
    assert "│ Skip   │ Excluded " in out
    assert "Test Summary: 0 tests passed and 0 tests failed, 1 excluded" in out


GENERATING = POLICY.replace("ValidatingPolicy", "GeneratingPolicy")
BROKEN = GENERATING.replace(
    'validations: [{expression: "has(object.metadata.labels)"}]',
    """generate: [{expression: 'generator.Apply("x", variables.nope)'}]""",
)
IDLE = BROKEN.replace("""'generator.Apply("x", variables.nope)'""", "'generator.Apply(\"x\", [])'")


@pytest.mark.parametrize("extra", ["kind: X", "generatedResource: made.yaml"])
def test_a_broken_generating_policy_is_no_pass(check, extra):
    code, out = check(BROKEN, MAP, extra=extra, made=MAP)
    assert (code, "│ Want pass, got error " in out) == (1, True)
    assert "ERROR: owner -> v1/ConfigMap/default/m:" in out


def test_what_must_be_generated_is_generated(check):
    assert check(IDLE, MAP)[0] == 0
    code, out = check(IDLE, MAP, extra="generatedResource: made.yaml", made=MAP)
    assert (code, "│ Resource error " in out) == (1, True)


@pytest.mark.parametrize("name", ["owner", "nobody"])
def test_a_check_without_rows_runs_and_must_match_something(tmp_path, capsys, name):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "resource.yaml").write_text(MAP)
    head, _, _ = TEST.partition("results:")
    checks = f"checks: [{{match: {{policy: {{metadata: {{name: {name}}}}}}}, assert: {{status: pass}}}}]\n"
    (tmp_path / "kyverno-test.yaml").write_text(head + checks)
    code, out = run(["test", str(tmp_path)]), capsys.readouterr().out
    assert (code, "1 tests passed" in out) == ((0, True) if name == "owner" else (1, False))


@pytest.mark.parametrize("extra", ["isValidatingPolicy: true", "rule: whatever", "kind: ConfigMap"])
def test_rules_have_no_names(check, extra):
    code, out = check(POLICY, MAP, extra=extra)
    assert (code, "│ Ok " in out) == (0, True)


@pytest.mark.parametrize("name", ["first", "second"])
def test_mutating_policies_are_compared_with_the_end(check, name):
    patched = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, labels: {a: b, first: x, second: x}}\n"
    code, _ = check(MUTATIONS, MAP, name, "patchedResources: patched.yaml", patched=patched)
    assert code == 0


def test_families_of_one_name_are_kept_apart(check):
    classic = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owner}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    validate: {pattern: {metadata: {name: "?*"}}}
"""
    code, out = check(f"{POLICY}\n---\n{classic}", MAP)
    assert code == 0
    assert "2 tests passed" in out


def test_a_guess_is_told(check):
    zoo = POLICY.replace('apiGroups: [""]', "apiGroups: [zoo.example]").replace(
        "configmaps", "lions"
    )
    lion = MAP.replace("v1", "zoo.example/v1").replace("ConfigMap", "Lion")
    code, out = check(zoo, lion)
    assert code == 0
    assert (
        out.count("  note: the resource name of zoo.example/v1 Lion in resourceRules is unknown")
        == 1
    )


def test_counts_say_how_many(check):
    _, out = check(POLICY, MAP)
    assert "Applying 1 policy to 1 resource with 0 exceptions ..." in out


def test_an_error_is_told_and_not_only_what_came_of_it(tmp_path, capsys):
    """A policy that cannot change anything leaves a difference; the reason is the error."""
    files = {
        "policy.yaml": """
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: label}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/no/such/place", value: "x"}]'}
""",
        "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n",
        "patched.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: mine, labels: {a: b}}\n",
        "kyverno-test.yaml": """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [pod.yaml]
results:
- {policy: label, kind: Pod, isMutatingPolicy: true, resources: [mine], patchedResources: patched.yaml, result: pass}
""",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert run(["test", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "Want pass, got error" in out
    assert "  ERROR: label -> v1/Pod/default/mine: " in out
    assert "doc is missing path" in out
