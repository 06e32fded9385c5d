"""`lint --crds` and `--cluster`: kinds and fields of custom resources, and what is told when there are none."""

import pytest

from lictor.cli import exit_codes

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cache, plural: caches}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}}}
"""
POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: guard}
spec:
  rules:
  - name: check
    match: {any: [{resources: {kinds: [Cache]}}]}
    validate:
      message: three replicas
      pattern:
        spec:
          replica: 3
"""
FOUND = 'policy.yaml:12:11: warning: spec.rules[0].validate.pattern.spec.replica: Cache has no field "spec.replica" (did you mean "replicas"?)'


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "cache.yaml").write_text(CRD)
    (tmp_path / "policy.yaml").write_text(POLICY)

    def call(*arguments):
        code = exit_codes.run(["lint", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_without_definitions_custom_kinds_are_open(run):
    assert run("--strict", "policy.yaml")[0] == 0


@pytest.mark.parametrize("path", ["crds", "crds/cache.yaml", "crds/*.yaml"])
def test_definitions_of_files_and_folders(run, path):
    code, out, _ = run("--strict", "--crds", path, "policy.yaml")
    assert code == 1
    assert out.startswith(FOUND)
    # The files with definitions are read, not checked.
    assert "in 1 file\n" in out


def test_definitions_within_a_list(run, tmp_path):
    items = CRD.replace("\n", "\n  ").rstrip()
    (tmp_path / "crds" / "cache.yaml").write_text(
        f"apiVersion: v1\nkind: List\nitems:\n- {items}\n"
    )
    assert run("--crds", "crds", "policy.yaml")[1].startswith(FOUND)


def test_settings_name_definitions_from_their_folder(run, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "policy.yaml").write_text(POLICY)
    (tmp_path / "lictor.toml").write_text('[lint]\ncrds = ["crds"]\n')
    assert FOUND in run("deep")[1]


def test_fixes_follow_definitions(run):
    code, out, _ = run("--crds", "crds", "--diff", "--unsafe-fixes", "policy.yaml")
    assert code == 1
    assert "+          replicas: 3\n" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--crds", "absent"], 2, "absent: no such file or directory"),
        (["--crds", "policy.yaml"], 1, "no CustomResourceDefinition was found in policy.yaml"),
        (["--crds", "broken.yaml"], 1, "broken.yaml:2:1"),
        (["--kubeconfig", "config"], 2, "--kubeconfig and --context select a cluster: add --cluster"),
        (["--cluster", "--kubeconfig", "absent"], 1, "absent: no such file"),
        (["--cluster", "--kubeconfig", "config"], 1, "no current-context"),
        (["--cluster", "--kubeconfig", "gone"], 1, "cannot read the CustomResourceDefinitions of the cluster"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(run, tmp_path, words, code, told):
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "config").write_text("clusters: []")
    (tmp_path / "gone").write_text(
        "current-context: a\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"
    )
    found, out, err = run(*words, "policy.yaml")
    assert (found, out) == (code, "")
    assert told in err
