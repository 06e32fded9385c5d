"""The text of a policy with its lines numbered, a rule marked, and its keys told from values."""

import re
from collections.abc import Iterable

from lictor.addons.web.markup import Html, element, escape, is_safe_address, join
from lictor.addons.web.records import ShownPolicy

# Rules for Pod controllers are made from the rule for Pods, which is what stands in the text.
_MADE_PREFIXES = ("autogen-cronjob-", "autogen-defaults-", "autogen-")
_COMMENT = re.compile(r"^\s*#")
_KEY = re.compile(
    r"""^(\s*(?:-\ +)*)([^\s#:'"{}\[\]-][^:#'"{}\[\]]*|"[^"]*"|'[^']*')(:)(?=\s|$)(.*)$"""
)
_MOST_LINES = 2000
_ANNOTATION = "policies.kyverno.io/"
_OTHER_ANNOTATION = "io.kubewarden.policy."


def render_text(text: str, marked: tuple[int, int] | None = None) -> Html:
    """YAML with numbered lines; those that are marked can be linked to as `#rule`."""
    lines = text.rstrip("\n").split("\n")
    numbered = enumerate(lines[:_MOST_LINES], 1)
    shown = [_render_line(number, line, marked) for number, line in numbered]
    left = len(lines) - _MOST_LINES
    more = element("p", f"{left:,} more lines are not shown.", class_="quiet") if left > 0 else None
    code = element("pre", element("code", shown), class_="text", tabindex="0")
    return join(code, more)


def _render_line(number: int, line: str, marked: tuple[int, int] | None) -> Html:
    is_marked = marked is not None and marked[0] <= number <= marked[1]
    begins = is_marked and marked is not None and number == marked[0]
    content = colour_line(line)
    return element(
        "span",
        join(content, "\n"),
        class_="line marked" if is_marked else "line",
        id="rule" if begins else None,
    )


def colour_line(line: str) -> Html:
    """One line of YAML; its key and its comment are told from the rest."""
    if _COMMENT.match(line):
        return element("span", line, class_="comment")
    found = _KEY.match(line)
    if found is None:
        return escape(line)
    return join(found[1], element("span", found[2], class_="key"), found[3], found[4])


def find_rule(policy: ShownPolicy, rule: str) -> tuple[int, int] | None:
    """The lines of the rule that a result names."""
    for prefix in ("", *_MADE_PREFIXES):
        if rule.startswith(prefix):
            found = policy.rule_lines.get(rule.removeprefix(prefix))
            if found is not None:
                return found
    return None


def read_title(policy: ShownPolicy | None, name: str) -> str:
    """What its author calls it, or its name."""
    return _read(policy, "title") or name


def _read(policy: ShownPolicy | None, word: str) -> str:
    if policy is None:
        return ""
    found = policy.annotations.get(f"{_ANNOTATION}{word}")
    return found or policy.annotations.get(f"{_OTHER_ANNOTATION}{word}", "")


def render_documentation(policy: ShownPolicy) -> Html:
    """What its author says about it."""
    facts = (
        ("Category", _read(policy, "category")),
        ("Severity", _read(policy, "severity")),
        ("About", _read(policy, "subject")),
        ("Kind", policy.kind),
        ("Namespace", policy.namespace),
    )
    address = _read(policy, "url")
    link = None
    if address and is_safe_address(address):
        link = element("a", address, href=address, rel="noreferrer noopener external")
    description = _read(policy, "description")
    return join(
        _render_paragraphs(description),
        render_facts((name, value) for name, value in facts if value),
        element("p", "More: ", link) if link else None,
    )


def _render_paragraphs(text: str) -> list[Html]:
    parts = [part.strip() for part in re.sub(r"(?m)^[^\S\n]+$", "", text).split("\n\n")]
    return [element("p", part, class_="prose") for part in parts if part]


def render_facts(facts: Iterable[tuple[str, str | Html | None]]) -> Html | None:
    """Names and values beside each other; nothing where there are none."""
    pairs = [
        element("div", element("dt", name), element("dd", value)) for name, value in facts if value
    ]
    return element("dl", pairs, class_="facts") if pairs else None
