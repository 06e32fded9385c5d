"""The tree of commands: names and summaries only; each command is imported when it is called."""

import click

from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.families import built_in
from lictor.core.release import VERSION

PROGRAM = "lictor"
# Set by completion scripts when the shell wants answers.
COMPLETION_VARIABLE = "_LICTOR_COMPLETE"
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Commands that Kyverno does not have: a wrong call of them is exit code 2, of all others 1.
OWN_COMMANDS = frozenset(
    (
        "cleanup",
        "compare",
        "control",
        "convert",
        "crds",
        "explain",
        "install",
        "lint",
        "lsp",
        "migrate",
        "policy-server",
        "preview",
        "rule",
        "serve",
        "status",
        "uninstall",
        "up",
        "verify",
        "wasm",
        "web",
    )
)
# Commands that read log flags (-v) themselves; all others take Kyverno's and do nothing.
LOGGING_COMMANDS = frozenset(("control", "serve", "up", "wasm", "web"))

COMMANDS = {
    **{name: LazyCommand(*entry) for name, entry in built_in.COMMANDS.items()},
    "apply": LazyCommand("lictor.cli.apply", "apply", "Apply policies to resources."),
    "cel": LazyCommand("lictor.cli.cel", "cel", "Work with CEL expressions."),
    "cleanup": LazyCommand(
        "lictor.cli.cleanup", "cleanup", "Show what cleanup policies would delete."
    ),
    "completion": LazyCommand(
        "lictor.cli.completion", "completion", "Print the completion script for a shell."
    ),
    "control": LazyCommand("lictor.cli.control", "control", "Run the controllers of the cluster."),
    "crds": LazyCommand(
        "lictor.cli.crds", "crds", "Print the definitions of all kinds of policies and reports."
    ),
    "create": LazyCommand("lictor.cli.create", "create", "Create files to start from."),
    "docs": LazyCommand("lictor.cli.docs", "docs", "Write the reference of all commands."),
    "explain": LazyCommand(
        "lictor.cli.explain", "explain", "Show step by step why a policy returns its result."
    ),
    "fix": LazyCommand("lictor.cli.fix", "fix", "Bring old files up to date."),
    "help": LazyCommand("lictor.cli.help", "show_help", "Show the help of a command."),
    "install": LazyCommand(
        "lictor.cli.install", "install", "Print or apply all manifests of an installation."
    ),
    "jp": LazyCommand("lictor.cli.jp", "jp", "Work with JMESPath expressions."),
    "lint": LazyCommand("lictor.cli.lint", "lint", "Check policies and test files for mistakes."),
    "preview": LazyCommand(
        "lictor.cli.preview", "preview", "Show what a policy would deny or change in a cluster."
    ),
    "rule": LazyCommand("lictor.cli.rule", "rule", "Explain a rule of lint."),
    "serve": LazyCommand("lictor.cli.serve", "serve", "Run the admission webhook."),
    "status": LazyCommand("lictor.cli.status", "status", "Show the health of an installation."),
    "test": LazyCommand("lictor.cli.test", "test", "Run the tests of policies."),
    "uninstall": LazyCommand(
        "lictor.cli.uninstall", "uninstall", "Remove an installation from the cluster."
    ),
    "verify": LazyCommand(
        "lictor.cli.verify",
        "verify",
        "Show who signed an image, and the results of policies for it.",
    ),
    "version": LazyCommand("lictor.cli.version", "version", "Print the version."),
}

cli = LazyGroup(
    name=PROGRAM,
    lazy=COMMANDS,
    entry_points="lictor.commands",
    context_settings=CONTEXT_SETTINGS,
    help=(
        "One policy engine for Kubernetes.\n\n"
        "Runs Kyverno's policies, tests and flags unchanged: evaluate resources with apply, test "
        "policies with test. Kyverno's log flags are accepted everywhere: -v lists ignored "
        "documents, the others have no effect."
    ),
)
click.version_option(VERSION, prog_name=PROGRAM, message="%(prog)s %(version)s")(cli)
