"""Where is what a text names (files, policies, rules, resources), and does the test here pass?"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from lictor.editor.cursor import Cursor
from lictor.errors import LictorError
from lictor.families.registry import registry
from lictor.files import is_visible, is_yaml, list_files
from lictor.load.yaml import Document, read_documents
from lictor.model.finding import FieldPath
from lictor.raw import JsonObject

_FILE_FIELDS = frozenset(
    (
        "policies", "resources", "targetResources", "paramResources", "exceptions", "variables",
        "userinfo", "clusterResources",
    )
)  # fmt: skip
_TOKEN = re.compile(r"[^\s\[\]{},'\"]+")
RUN_TEST = "lictor.runTest"
_LONGEST_SECONDS = 120.0
# In a large folder, the search ends somewhere.
_MOST_FILES = 3000
_MOST_BYTES = 4 * 1024 * 1024

# In a document: the path to what is sought, None where it is not there.
Search = Callable[[JsonObject], FieldPath | None]
ReadText = Callable[[str], bytes | None]


class Definition(msgspec.Struct, frozen=True):
    """Where something is defined: the file, and line and column in it, from zero."""

    path: str
    line: int = 0
    column: int = 0


def find_token(line: str, column: int) -> str:
    """The name or path that the cursor stands in."""
    for found in _TOKEN.finditer(line):
        if found.start() <= column <= found.end():
            return found[0]
    return ""


def find_definition(
    cursor: Cursor, token: str, source: str, root: str, read: ReadText
) -> Definition | None:
    """What a token at a place leads to; `read` has the texts that are open."""
    if not token:
        return None
    keys = [step for step in cursor.path if isinstance(step, str)]
    if cursor.kind == "Test" and len(keys) == 1 and keys[0] in _FILE_FIELDS:
        named = os.path.normpath(os.path.join(os.path.dirname(source), token))
        return Definition(named) if os.path.isfile(named) else None
    search = _choose_search(keys, cursor.kind, token)
    return None if search is None else _search_files(root, token, search, read)


def _choose_search(keys: list[str], kind: str, token: str) -> Search | None:
    last = keys[-1] if keys else ""
    if last == "policyName" or keys[-2:] == ["policyRefs", "name"]:
        return lambda body: _find_object(body, token, is_policy=True)
    if last in ("ruleNames", "rule"):
        return lambda body: _find_rule(body, token.removeprefix("autogen-"))
    if keys[-2:] == ["configMap", "name"]:
        return lambda body: _find_object(body, token, kind="ConfigMap")
    if kind == "Test" and keys[:1] == ["results"]:
        if last == "policy":
            return lambda body: _find_object(body, token.rpartition("/")[2], is_policy=True)
        if last == "resources":
            return lambda body: _find_object(body, token.rpartition("/")[2])
    return None


def _find_object(
    body: JsonObject, name: str, *, kind: str = "", is_policy: bool = False
) -> FieldPath | None:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        return None
    if kind and body.get("kind") != kind:
        return None
    return ("metadata", "name") if not is_policy or _is_policy(body) else None


def _is_policy(body: JsonObject) -> bool:
    group = str(body.get("apiVersion")).rpartition("/")[0]
    return registry().find(group, str(body.get("kind"))) is not None


def _find_rule(body: JsonObject, name: str) -> FieldPath | None:
    spec = body.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    for number, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict) and rule.get("name") == name:
            return ("spec", "rules", number, "name")
    return None


def _search_files(root: str, token: str, search: Search, read: ReadText) -> Definition | None:
    wanted = token.rpartition("/")[2].removeprefix("autogen-").encode()
    for path in _list_sources(root):
        content = read(path)
        if content is None:
            content = _read_file(path)
        if wanted not in content:
            continue
        for document in _read_objects(content, path):
            found = search(document.body)
            if found is not None:
                line, column = document.position(found)
                return Definition(path, line - 1, column - 1)
    return None


def _list_sources(root: str) -> Iterator[str]:
    visible: Callable[[str], bool] = lambda name: is_visible(name) or name == ".kyverno-test"  # noqa: E731
    for number, path in enumerate(list_files(root, is_yaml, visible)):
        if number == _MOST_FILES:
            return
        yield path


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def _read_objects(content: bytes, path: str) -> Iterator[Document]:
    try:
        for found in read_documents(content, path):
            if isinstance(found, Document) and isinstance(found.body, dict):
                yield found
    except LictorError:
        return


def list_test_lines(lines: list[str]) -> list[int]:
    """The lines that say that a document is a test."""
    return [
        number for number, line in enumerate(lines) if re.match(r"kind:\s*Test\s*(#.*)?$", line)
    ]


# --- tests, run from where they stand


class TestAnswer(msgspec.Struct, frozen=True):
    """What a run printed, its last words, and whether all went well."""

    # pytest must not take this for a test class.
    __test__ = False

    output: str
    summary: str
    is_good: bool


async def run_test(path: str) -> TestAnswer:
    """Run the tests of one file as `lictor test` does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lictor", "test", path, "--remove-color",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return TestAnswer("", f"no result within {_LONGEST_SECONDS:g} s", is_good=False)
    text = output.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    told = next((line for line in reversed(lines) if line.startswith("Test Summary")), "")
    summary = told or (lines[-1] if lines else "no output")
    return TestAnswer(text, summary, is_good=process.returncode == 0)
