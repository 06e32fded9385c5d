"""Checks of test files: whether the named files, policies, rules and resources exist."""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.errors import LookupFailedError
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.documents import LintFile, LintObject, list_objects, read_file
from lictor.lint.field import Field

RESULTS = ("pass", "fail", "warn", "error", "skip")
# Fields of a test that name files: one, or a list of them.
FILES = (
    *("policies", "resources", "targetResources", "paramResources", "exceptions", "variables"),
    *("userinfo", "context", "clusterResources", "jsonPayload", "jsonPayloads"),
    *("httpPayloads", "envoyPayloads"),
)
PAYLOADS = ("jsonPayload", "jsonPayloads", "httpPayloads", "envoyPayloads")
RESULT_FILES = (
    *("patchedResources", "generatedResource", "generatedResources", "cloneSourceResource"),
)


class TestInventory(msgspec.Struct, frozen=True):
    """The content of a test's files. None: unknown."""

    # The names of rules by the name of their policy; None if a policy has no named rules.
    rules: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)
    # Namespace and name.
    resources: set[tuple[str, str]] | None = msgspec.field(default_factory=set)


def list_files(body: Json) -> Iterator[Field]:
    """The parts of a test that name files."""
    test = Field(body)
    for name in FILES:
        yield from _list_names(test[name])
    for entry in test["globalContextEntries"].each():
        yield from _list_names(entry["resourceFiles"])
    for result in test["results"].each():
        for name in RESULT_FILES:
            yield from _list_names(result[name])


def _list_names(part: Field) -> Iterator[Field]:
    yield from (item for item in ([part] if part.text else part.each()) if item.text)


def lint_test(body: Json, inventory: TestInventory) -> list[Finding]:
    """The findings of a test's results, given the content of its files."""
    findings: list[Finding] = []
    for result in Field(body)["results"].each():
        findings.extend(_check_word(result["result"]))
        if inventory.rules is not None:
            findings.extend(_check_policy(result, inventory.rules))
        if inventory.resources is not None:
            findings.extend(_check_resources(result, inventory.resources))
    return findings


def _check_word(word: Field) -> Iterator[Finding]:
    if word.text and word.text not in RESULTS:
        message = f'expected one of {", ".join(RESULTS)}, found "{word.text}"'
        yield flag("bad-result", word.path, message, suggest(word.text, RESULTS))


def _check_policy(result: Field, rules: dict[str, list[str] | None]) -> Iterator[Finding]:
    policy, rule = result["policy"], result["rule"]
    name = policy.text.split("/")[-1]
    if not name:
        return
    if name not in rules:
        message = f'no policy "{name}" is among the files of this test'
        yield flag("unknown-target", policy.path, message, suggest(name, rules))
        return
    names = rules[name]
    if names is None or not rule.text or rule.text in _with_autogen(names):
        return
    message = f'policy "{name}" has no rule "{rule.text}": nothing is tested'
    yield flag("unknown-target", rule.path, message, suggest(rule.text, names))


def _with_autogen(names: Iterable[str]) -> set[str]:
    forms = ("{}", "autogen-{}", "autogen-cronjob-{}")
    return {form.format(name) for name in names for form in forms}


def _check_resources(result: Field, known: set[tuple[str, str]]) -> Iterator[Finding]:
    for resource in result["resources"].each():
        namespace, slash, name = resource.text.rpartition("/")
        if not name or any(_is_it(entry, namespace, name, bool(slash)) for entry in known):
            continue
        close = suggest(name, {entry[1] for entry in known})
        message = f'no resource "{resource.text}" is among the files of this test'
        yield flag("unknown-target", resource.path, message, close)


def _is_it(entry: tuple[str, str], namespace: str, name: str, is_qualified: bool) -> bool:  # noqa: FBT001
    return entry[1] == name and (not is_qualified or entry[0] == namespace)


# The files of a path, relative to the file that names it: path and content of each. None if there
# are none. Raises LookupFailedError if they cannot be read.
ReadFiles: TypeAlias = Callable[[str, str], Sequence[tuple[str, bytes]] | None]


class TestInputs:
    """Files that were read already: a test mostly names files that are linted themselves."""

    def __init__(self, files: Sequence[LintFile], read: ReadFiles | None) -> None:
        self._files = {posixpath.normpath(file.source): file for file in files}
        self._read = read

    def find(self, path: str, source: str) -> list[LintFile] | None:
        """The files of a path; None if there is no such file."""
        if self._read is None:
            raise LookupFailedError("no files can be read here")
        found = self._read(path, source)
        if found is None:
            return None
        return [self._open(name, content) for name, content in found]

    def list_sources(self, path: str, source: str) -> list[str]:
        """The names of the files of a path."""
        try:
            return [posixpath.normpath(file.source) for file in self.find(path, source) or ()]
        except LookupFailedError:
            return []

    def _open(self, name: str, content: bytes) -> LintFile:
        key = posixpath.normpath(name)
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = read_file(name, content)
        return file


def check_test(item: LintObject, inputs: TestInputs) -> list[Finding]:
    """The findings of a test and the files it names."""
    findings: list[Finding] = []
    found: dict[str, list[LintFile] | None] = {}
    for part in list_files(item.body):
        try:
            files = inputs.find(part.text, item.file.source)
        except LookupFailedError:
            continue
        if files is None:
            findings.append(flag("missing-file", part.path, f'there is no file "{part.text}"'))
        found[part.text] = files
    findings.extend(lint_test(item.body, _take_stock(item.body, found)))
    return findings


def _take_stock(body: Json, found: dict[str, list[LintFile] | None]) -> TestInventory:
    policies = _collect(body, ("policies",), found)
    resources = _collect(body, ("resources", "targetResources", "policies"), found)
    payloads = any(body.get(name) for name in PAYLOADS)
    return TestInventory(
        rules=None if policies is None else _list_rules(policies),
        resources=None if resources is None or payloads else _list_resource_names(resources),
    )


def _collect(
    body: Json, fields: tuple[str, ...], found: dict[str, list[LintFile] | None]
) -> list[LintObject] | None:
    """The objects in the files of some fields; None if one of them is unknown."""
    items: list[LintObject] = []
    for field in fields:
        for path in _list_paths(body.get(field)):
            files = found.get(path)
            if files is None or any(file.findings for file in files):
                return None
            items.extend(item for file in files for item in list_objects(file))
    return items


def _list_paths(value: Json) -> Iterator[str]:
    for path in value if isinstance(value, list) else [value]:
        if isinstance(path, str) and path:
            yield path


def _list_rules(items: list[LintObject]) -> dict[str, list[str] | None]:
    rules: dict[str, list[str] | None] = {}
    for item in items:
        if item.is_classic:
            rules[item.name] = list_rule_names(item.body)
        elif item.record is not None or item.is_raw:
            rules[item.name] = None
    return rules


def list_rule_names(body: Json) -> list[str]:
    """The names of the rules of a classic policy."""
    spec = body.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    if not isinstance(rules, list):
        return []
    names = [rule.get("name") for rule in rules if isinstance(rule, dict)]
    return [name for name in names if isinstance(name, str)]


def _list_resource_names(items: list[LintObject]) -> set[tuple[str, str]]:
    return {
        (space, item.name)
        for item in items
        for space in ((item.namespace,) if item.namespace else ("", "default"))
    }
