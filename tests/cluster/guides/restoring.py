"""Lines of YAML that have lost their indentation -> the object that they meant.

A key goes into the innermost open mapping that does not have it yet, unless the table says in which
mappings it belongs.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

_KEY = re.compile(r"([^\s:]+):(?: (.*))?$")
_RULE = ("rules[]", "[]", "")
# Where keys belong that would go too deep otherwise. "" is the outermost mapping.
_HOMES = {
    **dict.fromkeys(
        ("match", "exclude", "context", "validate", "mutate", "generate", "verifyImages"), _RULE
    ),
    "metadata": ("", "pattern", "patchStrategicMerge"),
    "spec": ("", "pattern", "patchStrategicMerge", "data"),
    "rules": ("", "spec"),
    "containers": ("spec",),
    "conditions": ("deny", "attestations[]"),
    **dict.fromkeys(("policies", "results"), ("",)),
    "resources": ("", "any[]", "containers[]", "value", "rules[]"),
}
# A text that is YAML itself.
_NESTED = "patchesJson6902"


@dataclass
class _Open:
    """A mapping or list that lines may still be added to."""

    name: str
    value: Any


@dataclass
class _Restoration:
    lines: list[str]
    stack: list[_Open] = field(default_factory=list)
    position: int = 0

    def run(self) -> Any:
        root = _Open("", [] if self.lines[0].startswith("- ") else {})
        self.stack.append(root)
        while self.position < len(self.lines):
            line = self.lines[self.position]
            self.position += 1
            if line.startswith("- "):
                self._add_item(line[2:])
            else:
                self._add_field(line)
        return root.value

    def _add_field(self, line: str) -> None:
        key, text = _KEY.match(line).groups()
        homes = _HOMES.get(key)
        self._close_until(
            lambda each: (
                isinstance(each.value, dict)
                and key not in each.value
                and (homes is None or each.name in homes)
            )
        )
        self._put(key, text)

    def _put(self, key: str, text: str | None) -> None:
        holder = self.stack[-1].value
        if text is not None and text.startswith("|"):
            holder[key] = self._take_text(key)
        elif text is not None:
            holder[key] = yaml.safe_load(text)
        else:
            is_list = self._peek().startswith("- ")
            holder[key] = [] if is_list else {}
            self.stack.append(_Open(key, holder[key]))

    def _take_text(self, key: str) -> str:
        rest, end = self.lines[self.position :], len(self.lines)
        if key == _NESTED:
            self.position = end
            return str(yaml.safe_dump(restore(rest)))
        count = next(n for n, line in enumerate(rest, 1) if line.startswith("-----END"))
        self.position += count
        return "\n".join(rest[:count])

    def _peek(self) -> str:
        return self.lines[self.position] if self.position < len(self.lines) else ""

    def _add_item(self, text: str) -> None:
        found = _KEY.match(text)
        first = found.group(1) if found else None
        self._close_until(lambda each: isinstance(each.value, list) and _takes(each.value, first))
        holder = self.stack[-1]
        if found is None:
            holder.value.append(yaml.safe_load(text))
            return
        holder.value.append({})
        self.stack.append(_Open(f"{holder.name}[]", holder.value[-1]))
        self._put(*found.groups())

    def _close_until(self, fits: Any) -> None:
        while not fits(self.stack[-1]):
            self.stack.pop()


def _takes(items: list[Any], first: str | None) -> bool:
    """Lists hold mappings that begin alike, or values."""
    if not items:
        return True
    begins = next(iter(items[-1])) if isinstance(items[-1], dict) else None
    return begins == first


def restore(lines: list[str]) -> Any:
    """What the lines meant."""
    return _Restoration(lines).run()
