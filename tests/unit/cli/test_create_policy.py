"""Created policies pass lint, and their tests notice every change of them."""

import io
import sys

import pytest

from lictor.cli.exit_codes import run


@pytest.mark.parametrize(
    ("rule", "kind", "check", "flags"),
    [
        ("validate", "Pod", "metadata.labels.team=?*", ["--enforce"]),
        ("validate", "Pod", "spec.containers.image=!*:latest", []),
        ("validate", "Deployment", "spec.replicas=>=2", ["--message", "Two: are needed"]),
        ("validate", "Namespace", "metadata.labels['example.com/owner']=a | b", ["--enforce"]),
        ("cel", "Deployment", "spec.replicas=<=3", ["--enforce"]),
        ("cel", "Pod", "spec.containers.image=ghcr.io/acme/*", []),
        ("cel", "Pod", "spec.hostNetwork=!true", []),
        ("cel", "ConfigMap", "metadata.labels.'example.com/owner'=?*", []),
        ("cel", "Pod", "spec.containers.resources.limits.memory=<=1Gi", []),
        ("mutate", "Pod", "metadata.labels.team=nobody", []),
        ("mutate", "Deployment", "metadata.labels.team=nobody", []),
    ],
)
def test_drafts_pass_lint_and_their_tests_notice_everything(
    tmp_path, capsys, rule, kind, check, flags
):
    folder = str(tmp_path / "draft")
    words = ["--rule", rule, "--kind", kind, "--check", check, "-o", folder, *flags]
    assert run(["create", "policy", "my-policy", *words]) == 0
    assert run(["lint", folder]) == 0, capsys.readouterr().out
    assert "warning" not in capsys.readouterr().out
    assert run(["test", folder, "--fail-under", "100"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "makes", "flags"),
    [
        ("Namespace", "NetworkPolicy", []),
        ("Namespace", "ResourceQuota", ["--check", "spec.hard.pods=50"]),
        ("Namespace", "LimitRange", []),
        ("Namespace", "ConfigMap", ["--check", "data.team=nobody"]),
        ("Deployment", "PodDisruptionBudget", ["--check", "spec.maxUnavailable=1"]),
        ("Namespace", "ServiceAccount", ["--check", "metadata.labels.team=nobody"]),
        ("PersistentVolume", "ConfigMap", ["--check", "data.owner=storage"]),
    ],
)
def test_generate_drafts_pass_lint_and_their_tests_notice_everything(
    tmp_path, capsys, kind, makes, flags
):
    folder = str(tmp_path / "draft")
    words = ["--rule", "generate", "--kind", kind, "--makes", makes, "-o", folder, *flags]
    assert run(["create", "policy", "my-policy", *words]) == 0
    assert run(["lint", folder]) == 0, capsys.readouterr().out
    assert "warning" not in capsys.readouterr().out
    assert run(["test", folder, "--fail-under", "100"]) == 0, capsys.readouterr().out


def test_a_generate_rule_asks_for_what_it_makes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("generate\n\nConfigMap\ndata.team=nobody\n"))
    assert run(["create", "policy", "team"]) == 0
    assert "Field of the ConfigMap" in capsys.readouterr().err
    assert sorted(each.name for each in (tmp_path / "team").iterdir()) == [
        "cluster-role.yaml", "generated.yaml", "kyverno-test.yaml", "policy.yaml", "resources.yaml",
    ]  # fmt: skip
    assert "team: nobody" in (tmp_path / "team" / "generated.yaml").read_text()


def test_what_is_not_given_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\nDeployment\nspec.replicas=3\n"))
    assert run(["create", "policy", "three"]) == 0
    out, asked = capsys.readouterr()
    assert "Kind of resource [Pod]" in asked
    assert "wrote three/policy.yaml" in out
    assert "kinds: [apps/v1/Deployment]" in (tmp_path / "three" / "policy.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--kind", "Deploymnet"], 'no kind "Deploymnet" (did you mean "Deployment"?)'),
        (["--check", "spec.container.image=a"], 'Pod.spec has no field "container" (did you mean'),
        (["--check", "spec.containers=a"], "holds more fields"),
        (["--check", "metadata.name"], "write FIELD=VALUE"),
        (["--rule", "cleanup"], 'no rule "cleanup" to create: use validate, cel, mutate, generate'),
        (["--rule", "generate", "--makes", "NetworkPolice"], 'no kind "NetworkPolice" (did you'),
        (
            ["--rule", "generate", "--makes", "ConfigMap", "--check", "data.team=?*"],
            '"?*" is a pattern: a rule that makes objects needs a value',
        ),
        (
            ["--rule", "generate", "--makes", "ConfigMap", "--check", "date.team=a"],
            'ConfigMap has no field "date" (did you mean',
        ),
        (["--rule", "cel", "--check", "spec.containers.ports.name=a"], "one list of objects only"),
        (["--check", ""], "no answer to the prompt"),
        (
            ["--rule", "mutate", "--check", "spec.containers.imagePullPolicy=Always"],
            "is never missing: the API server",
        ),
        (["--rule", "generate", "--makes", "ClusterRole"], "a ClusterRole is not namespaced"),
        (["-o", "."], "policy.yaml: exists already"),
    ],
)
def test_what_cannot_be_created_is_told(tmp_path, capsys, monkeypatch, words, error):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    (tmp_path / "policy.yaml").write_text("kept")
    usual = ["--rule", "validate", "--kind", "Pod", "--check", "metadata.labels.team=?*"]
    assert run(["create", "policy", "mine", *usual, *words]) != 0
    assert error in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["policy.yaml"]
    assert (tmp_path / "policy.yaml").read_text() == "kept"
