"""What others read to run lictor: hooks, the GitLab template, the plug-in, and examples for Argo CD and Flux."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lictor.cli.exit_codes import run
from lictor.cli.main import COMMANDS, cli
from lictor.core.lang.cel.expression import compile_expression, make_activation
from lictor.core.lang.cel.kubernetes import kubernetes_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TEMPLATE = (ROOT / "templates" / "lictor.yml").read_text()
INPUT = re.compile(r"\$\[\[ inputs\.([a-z]+) \]\]")


# --- pre-commit


def test_hooks_call_commands_that_are_there() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["lictor-lint", "lictor-test", "lictor-apply"]
    for hook in hooks:
        program, command, *flags = hook["entry"].split()
        assert (program, command in COMMANDS) == ("lictor", True)
        found = cli.get_command(None, command)
        known = {name for param in found.params for name in param.opts}
        assert {flag for flag in flags if flag.startswith("-")} <= known
        assert hook["language"] == "python"


# --- GitLab


def test_the_inputs_of_the_template_are_those_it_uses() -> None:
    head, _, body = TEMPLATE.partition("\n---\n")
    assert set(INPUT.findall(body)) == yaml.safe_load(head)["spec"]["inputs"].keys()


def test_the_template_asks_where_lictor_comes_from() -> None:
    inputs = yaml.safe_load(TEMPLATE.partition("\n---\n")[0])["spec"]["inputs"]
    # A name alone would be whatever an index has under it.
    assert [name for name, told in inputs.items() if "default" not in told] == ["package"]


# --- Argo CD and Flux


def read_documents(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((EXAMPLES / folder).rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield str(path.relative_to(EXAMPLES)), document


def find(folder: str, kind: str, name: str) -> dict[str, Any]:
    return next(
        document
        for _, document in read_documents(folder)
        if document["kind"] == kind and document["metadata"]["name"] == name
    )


# Where a misspelt field would be dropped in silence: what these kinds have at the top.
KNOWN_FIELDS = {
    (
        "argoproj.io/v1alpha1",
        "Application",
    ): "project source destination syncPolicy ignoreDifferences",
    ("source.toolkit.fluxcd.io/v1", "GitRepository"): "interval url ref",
    (
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
    ): "interval releaseName chart values install upgrade driftDetection",
    (
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
    ): "interval dependsOn sourceRef path prune force wait timeout healthCheckExprs",
}


@pytest.mark.parametrize("folder", ["argocd", "flux"])
def test_fields_are_those_of_the_kinds(folder: str) -> None:
    seen = 0
    for path, document in read_documents(folder):
        known = KNOWN_FIELDS.get((document["apiVersion"], document["kind"]))
        if known is not None:
            seen += 1
            assert document["spec"].keys() <= set(known.split()), path
    assert seen >= 2


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
@pytest.mark.parametrize(
    "folder", ["argocd/policies", "flux/repository", "flux/repository/policies"]
)
def test_kustomize_builds_them(folder: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(EXAMPLES / folder)], capture_output=True, text=True, check=True
    )
    made = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    if folder == "flux/repository/policies":
        assert made.keys() == {"ValidatingPolicy"}
        return
    [volume] = [
        each
        for each in made["Job"]["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "policies"
    ]
    assert volume["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
    assert ("ValidatingPolicy" in made) == (folder == "argocd/policies")


def test_what_the_hooks_run_passes_our_own_policies(capsys: pytest.CaptureFixture[str]) -> None:
    previews = [EXAMPLES / "argocd/policies", EXAMPLES / "flux/repository"]
    policies = [
        EXAMPLES / "policies" / name for name in ("no-privileged-pods.yaml", "team-label.yaml")
    ]
    policies.append(previews[0] / "read-only-root.yaml")
    resources = [word for each in previews for word in ("-r", str(each / "preview.yaml"))]
    code = run(["apply", *map(str, policies), *resources])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "pass: 0" not in said


def _conditions(**failing: str) -> dict[str, Any]:
    listed = [{"type": name, "status": "False", "message": text} for name, text in failing.items()]
    listed.append({"type": "Other", "status": "True", "message": "fine"})
    return {"conditionStatus": {"ready": False, "conditions": listed}}


# Statuses as the controllers write them, and what they mean: Flux's words.
WAITS = "Policy is not configured in the webhook."
STATUSES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "ValidatingPolicy": [
        ({}, "InProgress"),
        ({"conditionStatus": {"ready": True, "conditions": []}}, "Current"),
        (_conditions(WebhookConfigured=WAITS), "InProgress"),
        (_conditions(WebhookConfigured=WAITS, PolicyCached="no such function"), "Failed"),
        (_conditions(RBACPermissionsGranted="missing permissions"), "Failed"),
    ],
    "ClusterPolicy": [
        ({}, "InProgress"),
        ({"conditions": [{"type": "Ready", "status": "True", "message": "Ready"}]}, "Current"),
        (
            {"conditions": [{"type": "Ready", "status": "False", "message": "Not Ready"}]},
            "InProgress",
        ),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "no such"}]}, "Failed"),
    ],
}
ROWS = [(kind, *row) for kind, rows in STATUSES.items() for row in rows]
IN_ARGO = {"InProgress": "Progressing", "Current": "Healthy", "Failed": "Degraded"}


@pytest.mark.parametrize(("kind", "status", "health"), ROWS)
def test_health_of_flux_follows_the_status(kind: str, status: dict[str, Any], health: str) -> None:
    checks = find("flux", "Kustomization", "policies")["spec"]["healthCheckExprs"]
    [told] = [each for each in checks if each["kind"] == kind]
    activation = make_activation({"object": {"status": status}})
    # Flux asks in this order, and takes what nothing says for being in progress.
    for name in ("inProgress", "failed", "current"):
        text = re.sub(r"^status\b", "object.status", told.get(name, "false"))
        if compile_expression(text, kubernetes_environment())(activation):
            assert name.capitalize() == health.capitalize()
            return
    assert health == "InProgress"


def run_lua(script: str, resource: str) -> str:
    program = f"obj = {resource}\nlocal function look()\n{script}\nend\nprint(look().status)"
    lua = next(filter(None, map(shutil.which, ("lua5.1", "lua", "lua5.4", "luajit"))))
    done = subprocess.run([lua, "-"], input=program, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(
    not any(map(shutil.which, ("lua5.1", "lua", "lua5.4", "luajit"))),
    reason="no lua here, which reads Argo CD's health checks",
)
@pytest.mark.parametrize(("kind", "status", "health"), ROWS)
def test_health_of_argo_follows_the_status(kind: str, status: dict[str, Any], health: str) -> None:
    settings = yaml.safe_load(
        find("argocd", "ConfigMap", "argocd-cm")["data"]["resource.customizations"]
    )
    group = "kyverno.io/*" if kind == "ClusterPolicy" else "policies.kyverno.io/*"
    look = settings[group]["health.lua"]
    assert run_lua(look, write_lua({"kind": kind, "status": status})) == IN_ARGO[health]
    assert run_lua(look, '{kind="PolicyException"}') == "Healthy"


def write_lua(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={write_lua(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(write_lua, value)) + "}"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


# --- where packages come from is the user's affair


def test_no_package_index_is_named() -> None:
    # Written in parts, so that this file names none.
    ends = (
        "py" + "pi.org",
        "python" + "hosted.org",
        "npm" + "js.org",
        "npm" + "js.com",
        "proxy.go" + "lang.org",
    )
    words = [word for end in ends for word in ("-e", end)]
    done = subprocess.run(
        ["git", "grep", "-lF", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # 1: nothing found; 128: not a repository.
    assert (done.stdout, done.returncode in (1, 128)) == ("", True)
