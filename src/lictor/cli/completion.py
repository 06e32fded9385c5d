"""`completion`: prints the script that lets a shell complete commands and flags."""

import os
import sys

import click
import orjson
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from lictor.cli.flag_command import FlagCommand, WordText
from lictor.cli.main import COMPLETION_VARIABLE, PROGRAM

_EXAMPLES = """\
# bash, for this session or for good
source <(lictor completion bash)
lictor completion bash > /etc/bash_completion.d/lictor

# zsh
lictor completion zsh > "${fpath[1]}/_lictor"

# fish
lictor completion fish > ~/.config/fish/completions/lictor.fish

# elvish
lictor completion elvish > ~/.config/elvish/lib/lictor.elv

# PowerShell
lictor completion powershell | Out-String | Invoke-Expression"""

_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $env:COMP_WORDS = $commandAst.ToString()
    $env:COMP_WORD = $wordToComplete
    $env:%(complete_var)s = "powershell_complete"
    %(prog_name)s | ForEach-Object {
        $kind, $value, $text = $_ -split "`t", 3
        # Without an answer, PowerShell completes paths.
        if ($kind -eq "plain") {
            if (-not $text) { $text = $value }
            $type = [System.Management.Automation.CompletionResult]
            $type::new($value, $value, "ParameterValue", $text)
        }
    }
    Remove-Item Env:COMP_WORDS, Env:COMP_WORD, Env:%(complete_var)s
}
"""


_ELVISH = """\
use str

set edit:completion:arg-completer[%(prog_name)s] = {|@words|
    tmp E:COMP_WORDS = (put $words | to-json)
    tmp E:%(complete_var)s = elvish_complete
    %(prog_name)s | from-lines | each {|line|
        var kind value text = (str:split &max=3 "\\t" $line)
        if (eq $kind plain) {
            edit:complex-candidate $value &display=$value' '$text
        } else {
            edit:complete-filename $@words
        }
    }
}
"""


class EqualsBashComplete(BashComplete):
    """Completion for bash, which splits `--flag=value` into three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if args and args[-1] == "=":
            args.pop()
        return args, incomplete


class PowerShellComplete(ShellComplete):
    """Completion for PowerShell, which click does not bring."""

    name = "powershell"
    source_template = _POWERSHELL

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))[1:]
        incomplete = os.environ.get("COMP_WORD", "")
        if incomplete and words and words[-1] == incomplete:
            words.pop()
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type}\t{item.value}\t{item.help or ''}"


class ElvishComplete(PowerShellComplete):
    """Completion for elvish, which hands all words over as JSON; the last is incomplete."""

    name = "elvish"
    source_template = _ELVISH

    def get_completion_args(self) -> tuple[list[str], str]:
        words = orjson.loads(os.environ.get("COMP_WORDS") or "[]")[1:] or [""]
        return words[:-1], words[-1]


_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": EqualsBashComplete,
    "elvish": ElvishComplete,
    "fish": FishComplete,
    "powershell": PowerShellComplete,
    "zsh": ZshComplete,
}


@click.command(cls=FlagCommand, arity=(1, 1), argument_type=WordText(_SHELLS), examples=_EXAMPLES)
@click.pass_context
def completion(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Print the completion script for a shell: bash, zsh, fish, elvish or powershell."""
    if arguments[0] not in _SHELLS:
        raise click.UsageError(
            f'invalid argument "{arguments[0]}" for "{ctx.command_path}": choose one of '
            f"{', '.join(_SHELLS)}",
            ctx,
        )
    click.echo(render_script(ctx.find_root().command, arguments[0]), nl=False)


def render_script(root: click.Command, shell: str) -> str:
    """Return the script by which a shell requests completions."""
    made = _SHELLS[shell](root, {}, PROGRAM, COMPLETION_VARIABLE)
    # Not made.source(): click would start bash to read its version.
    return made.source_template % made.source_vars()


def answer_shell(root: click.Command, instruction: str) -> int:
    """Answer a completion script: which words could come next?"""
    for shell in _SHELLS.values():
        add_completion_class(shell)
    return shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, instruction)


def answer_kubectl() -> int:
    """Answer kubectl for its plug-in `kubectl lictor`: one word a line, and what else to offer."""
    from lictor.cli.main import cli

    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, PROGRAM, COMPLETION_VARIABLE).get_completions(words, incomplete)
    kinds = {item.type for item in items}
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_list_kubectl_offers(kinds)}")
    return 0


def _list_kubectl_offers(kinds: set[str]) -> int:
    """The numbers that kubectl, as every program made with cobra, knows for this."""
    if "file" in kinds:
        return 0
    return 16 if "dir" in kinds else 4
