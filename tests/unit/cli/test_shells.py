"""Completion in real shells: commands, options, values of options, and paths."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from shell_terminal import Shell

STARTS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "bind 'set bell-style none'; source <(lictor completion bash); echo is'-'set\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "unsetopt beep list_beep; autoload -U compinit && compinit -u -D; "
        "source <(lictor completion zsh); echo is'-'set\n",
    ),
}
# What is typed before Tab, and what stands there after it.
COMPLETED = [
    ("lictor expl", "lictor explain"),
    ("lictor apply --policy-rep", "lictor apply --policy-report"),
    ("lictor apply poli", "lictor apply policies/"),
    ("lictor apply policies/need", "lictor apply policies/need-team.yaml"),
    ("lictor apply x.yaml -r policies/need", "-r policies/need-team.yaml"),
    ("lictor apply x.yaml --values-file policies/need", "--values-file policies/need-team.yaml"),
    ("lictor apply x.yaml --output-format mark", "--output-format markdown"),
    ("lictor lint --format gith", "lictor lint --format github"),
    ("lictor test . -o juni", "lictor test . -o junit"),
    ("lictor completion powe", "lictor completion powershell"),
    ("lictor jp function trunc", "lictor jp function truncate"),
    ("lictor up --policies poli", "lictor up --policies policies/"),
    ("lictor wasm scaffold mani", "lictor wasm scaffold manifest"),
    ("lictor wasm run -r policies/need", "-r policies/need-team.yaml"),
    ("lictor wasm completions -s elv", "lictor wasm completions -s elvish"),
]
IN_BASH = [
    ("lictor apply x.yaml --output-format=mark", "--output-format=markdown"),
    ("lictor apply x.yaml --resource=policies/need", "--resource=policies/need-team.yaml"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shell")
    (made / "policies").mkdir()
    (made / "policies" / "need-team.yaml").write_text("")
    return made


@pytest.mark.parametrize("name", STARTS)
def test_completion(name: str, folder: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    command, setting_up = STARTS[name]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = Shell(command, folder, {**os.environ, "PATH": path, "HOME": str(folder)})
    try:
        shell.type(setting_up)
        shell.wait_for("is-set")
        for typed, expected in [*COMPLETED, *(IN_BASH if name == "bash" else [])]:
            shell.type(f"{typed}\t")
            shell.wait_for(expected)
            # Throw the line away: nothing of it is to run.
            shell.type("\x15")
    finally:
        shell.close()
