"""Writes docs/rules: a page for each rule of `lint`, with the text that `lictor rule` prints."""

import sys
from pathlib import Path

import yaml

from lictor.cli.rule import read_rule_examples, render_rule
from lictor.lint.catalog import CHECKS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "rules"
INTRO = "Every rule of [`lictor lint`](../guides/lint.md). `lictor rule CODE` prints the same text."
SEE = "See [lint](../guides/lint.md#select-rules).\n"
RULE = """\
name: check
match: {any: [{resources: {kinds: [Pod]}}]}
validate: {message: not allowed, deny: {}}
"""
HEAD = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: example}\n"
GROUPS = {
    "1": "Documents and fields",
    "2": "Rules",
    "3": "Match and exclude",
    "4": "Expressions and context",
    "5": "Patterns and field types",
    "6": "Behavior in a cluster",
    "7": "Related files",
}


def complete(part: str) -> str:
    """A whole document, as the part of it stands on the page."""
    if part.lstrip("\n").startswith(("apiVersion:", "kind:")):
        return part
    if part.startswith("\n"):
        part = part[1:]
    if part.startswith("spec:"):
        has_rules = "rules:" in part
        return HEAD + (part if has_rules else _add_rule(part))
    own = {line.split(":")[0] for line in part.splitlines() if line[:1].isalpha()}
    usual = [line for line in RULE.splitlines() if line.split(":")[0] not in own]
    body = "\n".join([*usual, *part.replace("validate: null\n", "").splitlines()])
    return f"{HEAD}spec:\n  rules:\n  - " + body.replace("\n", "\n    ") + "\n"


def _add_rule(part: str) -> str:
    spec = yaml.safe_load(part)["spec"]
    rule = yaml.safe_load(RULE)
    return yaml.safe_dump({"spec": {**spec, "rules": [rule]}}, sort_keys=False)


def render_index() -> str:
    """All rules, by group."""
    lines = ["# Lint rules", "", INTRO, ""]
    for digit, title in GROUPS.items():
        chosen = [check for check in CHECKS.values() if check.code[3] == digit]
        if chosen:
            lines += [
                f"## {title}",
                "",
                "| code | name | severity | finding |",
                "|---|---|---|---|",
            ]
            lines += [
                f"| [{c.code}]({c.code}.md) | `{c.name}` | {c.severity} | {c.summary} |"
                for c in sorted(chosen, key=lambda each: each.code)
            ]
            lines.append("")
    return "\n".join(lines)


def build_pages() -> dict[str, str]:
    """By name, all files of the folder."""
    examples = read_rule_examples()
    pages = {
        f"{c.code}.md": render_rule(c, examples.get(c.code, {})) + SEE for c in CHECKS.values()
    }
    return {**pages, "README.md": render_index()}


def main() -> int:
    """Write the folder anew."""
    FOLDER.mkdir(exist_ok=True)
    pages = build_pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
