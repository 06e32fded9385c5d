"""Files of `lictor test`: do they ask for things that are there, in words that exist?"""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.load.fields import suggest
from lictor.model.finding import Finding
from lictor.raw import Json

RESULTS = ("pass", "fail", "warn", "error", "skip")
# Fields of a test that name files: one, or a list of them.
FILES = (
    *("policies", "resources", "targetResources", "paramResources", "exceptions", "variables"),
    *("userinfo", "context", "clusterResources", "jsonPayload", "httpPayloads", "envoyPayloads"),
)
RESULT_FILES = ("patchedResources", "generatedResource", "cloneSourceResource")


class Inventory(msgspec.Struct, frozen=True):
    """What the files of a test hold. None: it cannot be known."""

    # The names of rules by the name of their policy; None where a policy has no named rules.
    rules: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)
    # Namespace and name.
    resources: set[tuple[str, str]] | None = msgspec.field(default_factory=set)


def list_files(body: Json) -> Iterator[Part]:
    """The parts of a test that name files."""
    test = Part(body)
    for name in FILES:
        yield from _list_names(test[name])
    for result in test["results"].each():
        for name in RESULT_FILES:
            yield from _list_names(result[name])


def _list_names(part: Part) -> Iterator[Part]:
    yield from (item for item in ([part] if part.text else part.each()) if item.text)


def lint_test(body: Json, inventory: Inventory) -> list[Finding]:
    """What is wrong with the results of a test, given what its files hold."""
    findings: list[Finding] = []
    for result in Part(body)["results"].each():
        findings.extend(_check_word(result["result"]))
        if inventory.rules is not None:
            findings.extend(_check_policy(result, inventory.rules))
        if inventory.resources is not None:
            findings.extend(_check_resources(result, inventory.resources))
    return findings


def _check_word(word: Part) -> Iterator[Finding]:
    if word.text and word.text not in RESULTS:
        message = f'expected one of {", ".join(RESULTS)}, found "{word.text}"'
        yield flag("bad-result", word.path, message, suggest(word.text, RESULTS))


def _check_policy(result: Part, rules: dict[str, list[str] | None]) -> Iterator[Finding]:
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


def _check_resources(result: Part, known: set[tuple[str, str]]) -> Iterator[Finding]:
    for resource in result["resources"].each():
        namespace, slash, name = resource.text.rpartition("/")
        if not name or any(_is_it(entry, namespace, name, bool(slash)) for entry in known):
            continue
        close = suggest(name, {entry[1] for entry in known})
        message = f'no resource "{resource.text}" is among the files of this test'
        yield flag("unknown-target", resource.path, message, close)


def _is_it(entry: tuple[str, str], namespace: str, name: str, is_qualified: bool) -> bool:  # noqa: FBT001
    return entry[1] == name and (not is_qualified or entry[0] == namespace)
