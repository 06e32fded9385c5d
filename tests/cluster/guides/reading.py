"""Text of a guide -> the commands and the blocks of YAML that stand in it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROGRAMS = ("kubectl", "kyverno", "helm", "curl", "tar", "sudo", "cosign", "kwctl", "docker")
_PROMPT = re.compile(r"^\s*(?:\$ |run: (?!\|))?")
_COMMAND = re.compile(rf"(?:{'|'.join(_PROGRAMS)}) [\w-].*")
# A sentence may begin with the name of a program; commands do not end with a full stop after a word.
_SENTENCE = re.compile(r".*[a-z]{2}\.\s*$")
_KEY = re.compile(r"(?:- )?[\w+=()^<>\"'./*?!-]+:(?: .*)?$")
_ITEM = re.compile(r"- [^ ].*$")
_KEY_LINE = re.compile(r"(-----(BEGIN|END) .*-----|[A-Za-z0-9+/=.]{20,})$")
_OPENINGS = re.compile(
    r"(apiVersion|spec|match|validate|mutate|generate|verifyImages|name):|- (name|keys):"
)


def read_commands(path: Path) -> list[str]:
    """The commands, each in one line, in their order."""
    lines = iter(path.read_text().splitlines())
    return [command for line in lines if (command := _read_command(line, lines))]


def _read_command(line: str, following: Iterator[str]) -> str:
    text = line[_PROMPT.match(line).end() :].rstrip()
    if not _COMMAND.match(text) or _SENTENCE.match(text):
        return ""
    parts = [text]
    while parts[-1].endswith("\\"):
        parts[-1] = parts[-1].rstrip("\\").rstrip()
        parts.append(next(following, "").strip())
    return " ".join(parts)


def read_blocks(path: Path) -> list[list[str]]:
    """The blocks of YAML in a text that has lost its indentation and its fences."""
    blocks: list[list[str]] = []
    block: list[str] = []
    for line in path.read_text().splitlines():
        if _belongs(line, block):
            block.append(line)
        elif block:
            blocks.append(block)
            block = []
    return [each for each in [*blocks, block] if len(each) > 2]


def _belongs(line: str, block: list[str]) -> bool:
    if not block:
        return bool(_OPENINGS.match(line)) and bool(_KEY.match(line))
    if line.startswith("apiVersion:") and not block[-1].endswith(":"):
        return False
    return any(form.match(line) for form in (_KEY, _ITEM, _KEY_LINE))


def find_block(blocks: Iterable[list[str]], *words: str) -> list[str]:
    """The only block that has all these lines."""
    found = [block for block in blocks if all(word in block for word in words)]
    assert len(found) == 1, f"{len(found)} blocks with {words}"
    return found[0]


def read_fenced(path: Path) -> list[str]:
    """The texts between fences that are marked as YAML."""
    return re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
