"""Names that nothing uses: prints each and ends with 1 where there are any.

vulture finds them. Left out are fields of records (the form of a document says which there are, not
the code that reads them), what a library calls by its name, and what is named in a text, as
commands, types in quotes and the parts of kinds of policies are.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

ROOT = Path(__file__).parents[1]
LONGEST_NAME = 80
FOLDERS = ("src", "scripts", "tests", "tools")
# What a library or the interpreter calls or reads, by name; each with who does so.
CALLED = {
    "__getattr__": "Python, for the public API",
    "__dir__": "Python, for the public API",
    "connection_made": "asyncio",
    "connection_lost": "asyncio",
    "buffer_updated": "asyncio",
    "data_received": "asyncio",
    "get_buffer": "asyncio",
    "eof_received": "asyncio",
    "pause_writing": "asyncio",
    "resume_writing": "asyncio",
    "readinto": "io",
    "on_message_begin": "httptools",
    "on_url": "httptools",
    "on_header": "httptools",
    "on_headers_complete": "httptools",
    "on_body": "httptools",
    "on_message_complete": "httptools",
    "on_status": "httptools",
    "handle_starttag": "html.parser",
    "DESCRIPTOR": "protobuf",
    "descend_resolver": "PyYAML",
    "ignore_aliases": "PyYAML",
    "ascend_resolver": "PyYAML",
    "current_node": "PyYAML",
    "current_index": "PyYAML",
    "yaml_implicit_resolvers": "PyYAML",
    "answer_kubectl": "kubectl, through a script of pyproject.toml",
    "format_completion": "click",
    "format_commands": "click",
    "log_errors": "re2",
    "max_mem": "re2",
    "logMultiprocessing": "logging",
    "logProcesses": "logging",
    "logThreads": "logging",
    "_srcfile": "logging",
    "groupindex": "re2",
    "ENCODING": "lang/jmespath/functions, by the name of the module",
    "MATCHING": "lang/jmespath/functions, by the name of the module",
    "STANDARD": "lang/jmespath/functions, by the name of the module",
    "TIME": "lang/jmespath/functions, by the name of the module",
}


def main() -> int:
    """Search, print, and return whether anything was found."""
    finder = Vulture()
    finder.scavenge([str(ROOT / folder) for folder in FOLDERS])
    named = set(_list_texts())
    dead = [
        item
        for item in finder.get_unused_code(min_confidence=60)
        if not str(item.filename).startswith(str(ROOT / "tests"))
        and item.name not in named
        and not _is_used(item)
    ]
    for item in dead:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: nothing uses the {item.typ} {item.name}")
    return 1 if dead else 0


def _is_used(item: Item) -> bool:
    if item.name in CALLED:
        return True
    if item.typ == "variable":
        return any(first <= item.first_lineno <= last for first, last in _list_records(item))
    return False


def _list_records(item: Item) -> Iterator[tuple[int, int]]:
    """Lines of classes that are records, enumerations or the like: fields are their form."""
    for node in ast.walk(ast.parse(Path(item.filename).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and (node.bases or node.decorator_list):
            yield node.lineno, node.end_lineno or node.lineno


def _list_texts() -> Iterator[str]:
    """All words in texts that may name something: "module:name", "Type | None", commands."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and len(text) <= LONGEST_NAME:
                yield from re.findall(r"[A-Za-z_]\w*", text)
    # Expressions of Jinja2 templates read properties of records.
    for path in (ROOT / "src").rglob("templates/*.html"):
        for expression in re.findall(
            r"\{[{%].*?[}%]\}", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            yield from re.findall(r"[A-Za-z_]\w*", expression)
    # The table of built-in kinds names functions by their modules.
    for path in (ROOT / "src").rglob("kinds.yaml"):
        yield from re.findall(r"\b\w+\.(\w+)", path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
