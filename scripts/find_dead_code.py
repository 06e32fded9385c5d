"""Names that nothing uses: prints each and ends with 1 where there are any.

vulture finds them. Left out are fields of records (the form of a document says which there are, not
the code that reads them), what a library calls by its name, and commands, which are found by text.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "scripts")
# What a library or the interpreter calls or reads, by name; each with who does so.
CALLED = {
    "__getattr__": "Python, for the public API",
    "__dir__": "Python, for the public API",
    "connection_made": "asyncio",
    "connection_lost": "asyncio",
    "data_received": "asyncio",
    "eof_received": "asyncio",
    "pause_writing": "asyncio",
    "resume_writing": "asyncio",
    "on_message_begin": "httptools",
    "on_url": "httptools",
    "on_header": "httptools",
    "on_headers_complete": "httptools",
    "on_body": "httptools",
    "on_message_complete": "httptools",
    "on_status": "httptools",
    "DESCRIPTOR": "protobuf",
    "descend_resolver": "PyYAML",
    "ascend_resolver": "PyYAML",
    "current_node": "PyYAML",
    "current_index": "PyYAML",
    "yaml_implicit_resolvers": "PyYAML",
    "format_completion": "click",
    "format_commands": "click",
    "log_errors": "re2",
    "max_mem": "re2",
    "logMultiprocessing": "logging",
    "logProcesses": "logging",
    "logThreads": "logging",
    "_srcfile": "logging",
}


def main() -> int:
    """Look, print, say whether anything was found."""
    finder = Vulture()
    finder.scavenge([str(ROOT / folder) for folder in FOLDERS])
    dead = [item for item in finder.get_unused_code(min_confidence=60) if not _is_used(item)]
    for item in dead:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: nothing uses the {item.typ} {item.name}")
    return 1 if dead else 0


def _is_used(item: Item) -> bool:
    if item.name in CALLED:
        return True
    if item.typ == "variable":
        return any(first <= item.first_lineno <= last for first, last in _list_records(item))
    return item.typ == "function" and _is_command(item)


def _list_records(item: Item) -> Iterator[tuple[int, int]]:
    """Lines of classes that are records, enumerations or the like: fields are their form."""
    for node in ast.walk(ast.parse(Path(item.filename).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and (node.bases or node.decorator_list):
            yield node.lineno, node.end_lineno or node.lineno


def _is_command(item: Item) -> bool:
    return "/cli/" in str(item.filename)


if __name__ == "__main__":
    sys.exit(main())
