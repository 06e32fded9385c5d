"""The text and the documentation of a policy, prepared for display."""

import re

import msgspec

from lictor.addons.web.records import ShownPolicy

# Rules for Pod controllers are made from the rule for Pods, which is what stands in the text.
_MADE_PREFIXES = ("autogen-cronjob-", "autogen-defaults-", "autogen-")
_COMMENT = re.compile(r"^\s*#")
_KEY = re.compile(
    r"""^(\s*(?:-\ +)*)([^\s#:'"{}\[\]-][^:#'"{}\[\]]*|"[^"]*"|'[^']*')(:)(?=\s|$)(.*)$"""
)
MOST_LINES = 2000
_ANNOTATION = "policies.kyverno.io/"
_OTHER_ANNOTATION = "io.kubewarden.policy."


class TextLine(msgspec.Struct, frozen=True):
    """One line of YAML, cut into what is coloured differently."""

    before: str
    key: str = ""
    after: str = ""
    is_comment: bool = False


def list_lines(text: str) -> list[TextLine]:
    """The lines of a YAML document, at most 2,000."""
    return [split_line(line) for line in text.rstrip("\n").split("\n", MOST_LINES)[:MOST_LINES]]


def split_line(line: str) -> TextLine:
    """Separate the key of a line from the rest."""
    if _COMMENT.match(line):
        return TextLine(line, is_comment=True)
    found = _KEY.match(line)
    if found is None:
        return TextLine(line)
    return TextLine(found[1], found[2], f"{found[3]}{found[4]}")


def find_rule(policy: ShownPolicy, rule: str) -> tuple[int, int] | None:
    """The lines of the rule that a result names."""
    for prefix in ("", *_MADE_PREFIXES):
        if rule.startswith(prefix):
            found = policy.rule_lines.get(rule.removeprefix(prefix))
            if found is not None:
                return found
    return None


def read_title(policy: ShownPolicy | None, name: str) -> str:
    """The title that the author of a policy gave it, or its name."""
    return read_annotation(policy, "title") or name


def read_annotation(policy: ShownPolicy | None, word: str) -> str:
    """An annotation in which authors document a policy; empty if it is missing."""
    if policy is None:
        return ""
    found = policy.annotations.get(f"{_ANNOTATION}{word}")
    return found or policy.annotations.get(f"{_OTHER_ANNOTATION}{word}", "")


def list_paragraphs(text: str) -> list[str]:
    """The parts of a text between empty lines."""
    parts = [part.strip() for part in re.sub(r"(?m)^[^\S\n]+$", "", text).split("\n\n")]
    return [part for part in parts if part]
