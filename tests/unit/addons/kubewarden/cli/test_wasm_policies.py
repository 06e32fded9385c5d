"""`apply` with policies in Wasm: modules from a registry on loopback, and from files."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "images"))
from registry_server import RegistryServer

from lictor.addons.kubewarden.modules.module_sources import ModuleSources
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.cli.exit_codes import run

EXAMPLES = Path(__file__).parents[5] / "examples" / "kubewarden"
POLICY = """\
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {{name: no-privileged}}
spec:
  module: {module}
  settings: {{text: '"privileged":true'}}
  mutating: false
  rules: [{{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}}]
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def apply(tmp_path: Path, module: str) -> int:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(module=module))
    return run(["apply", str(policy), "-r", str(EXAMPLES / "pods.yaml")])


@pytest.mark.parametrize("scheme", ["registry://", ""])
def test_a_registry_on_loopback(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with RegistryServer() as server:
        server.take_pushes()
        sources = ModuleSources(insecure=frozenset([server.name]))
        store = ModuleStore(ModuleSettings(folder=tmp_path / "store", sources=sources))
        address = f"{server.name}/policies/forbid-text:v1"
        store.push((EXAMPLES / "forbid-text.wasm").read_bytes(), f"registry://{address}", None)
        file = tmp_path / "sources.yml"
        file.write_text(f"insecure_sources: ['{server.name}']\n")
        monkeypatch.setenv("KUBEWARDEN_SOURCES_PATH", str(file))
        assert apply(tmp_path, f"{scheme}{address}") == 1
    assert "pass: 3, fail: 1, warn: 0, error: 0" in capsys.readouterr().out


def test_without_sources_a_registry_must_speak_https(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RegistryServer() as server:
        assert apply(tmp_path, f"registry://{server.name}/policies/forbid-text:v1") == 1
    out = capsys.readouterr().out
    assert "pass: 0, fail: 0, warn: 0, error: 4" in out
    assert "the policy cannot be run" in out


def test_files_are_found_from_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "modules").mkdir()
    copy = tmp_path / "modules" / "copy.wasm"
    copy.write_bytes((EXAMPLES / "forbid-text.wasm").read_bytes())
    monkeypatch.chdir("/")
    assert apply(tmp_path, "file://modules/copy.wasm") == 1
    assert "pass: 3, fail: 1" in capsys.readouterr().out
    copy.write_bytes(b"no module")
    assert apply(tmp_path, "file://modules/copy.wasm") == 1
    assert "error: 4" in capsys.readouterr().out


def test_other_policies_do_not_load_the_engine_of_wasm(tmp_path: Path) -> None:
    import subprocess

    policy = EXAMPLES.parent / "policies" / "team-label.yaml"
    script = (
        "import sys; from lictor.cli.exit_codes import run; "
        f"run(['apply', {str(policy)!r}, '-r', {str(EXAMPLES / 'pods.yaml')!r}]); "
        "sys.exit('wasmtime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        ("plain", ("policy: pass", "✓ rules[0].resources", "✓ objectSelector", "= true")),
        ("other", ("policy: does not concern", "✓ rules[0].operations", "✗ objectSelector")),
        ("excused", ("matchConditions[0]: ", "= false")),
    ],
)
@pytest.mark.parametrize("mutating", ["false", "true"])
def test_explain(
    tmp_path: Path,
    resource: str,
    told: tuple[str, ...],
    mutating: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = POLICY.format(module=f"file://{EXAMPLES}/forbid-text.wasm")
    policy = policy.replace("mutating: false", f"mutating: {mutating}")
    policy += "  objectSelector: {matchLabels: {tier: web}}\n"
    policy += "  matchConditions: [{name: a, expression: object.metadata.name != 'excused'}]\n"
    (tmp_path / "policy.yaml").write_text(policy)
    tier = "web" if resource != "other" else "data"
    (tmp_path / "pod.yaml").write_text(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {resource}, labels: {{tier: {tier}}}}}\n"
    )
    words = ["explain", str(tmp_path / "policy.yaml"), "-r", str(tmp_path / "pod.yaml")]
    assert run(words) == 0
    out = capsys.readouterr().out
    for text in told:
        assert text in out
