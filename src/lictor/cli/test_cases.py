"""Test files: found, read, and all the files that they name loaded."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.given_answers import load_answers
from lictor.cli.inputs.input_files import (
    is_older_form,
    load_caller,
    load_cluster_resources,
    load_context,
    load_definitions,
    load_tests,
    load_values_file,
    read_resource_texts,
)
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.policies import LoadedPolicies, load_exceptions, load_policy_files
from lictor.cli.inputs.records import Test, TestResult, ValuesSpec
from lictor.cli.inputs.repositories import GitAccess, clone_repository, is_repository_url
from lictor.cli.inputs.requests import GivenValues
from lictor.cli.inputs.resources import Payload, load_payloads, load_resources
from lictor.cli.inputs.sources import read_any, read_file, read_policies, resolve_path
from lictor.cli.responses import key_of
from lictor.core.errors import LictorError, LoadError
from lictor.core.files import walk_folder
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.request import Caller
from lictor.core.ports import Lookups
from lictor.core.raw import JsonObject

PrintLine = Callable[[str], None]
# Called with notes that are printed with -v.
Note = Callable[[Iterable[str]], None]

TEST_FILE = "kyverno-test.yaml"


class TestCase(msgspec.Struct, frozen=True):
    """One Test document, and its file."""

    # pytest must not take this for a test class.
    __test__ = False

    path: str
    test: Test

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def locate(self, path: str) -> str:
        """A path as seen from the folder of the file."""
        return resolve_path(path, self.folder)

    def resolve(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths as seen from the folder of the file."""
        return tuple(map(self.locate, paths))


def find_test_files(path: str, file_name: str, access: GitAccess) -> Iterator[str]:
    """The test files below a folder or in a repository, in the order of their names."""
    if is_repository_url(path, branch=access.branch):
        path = clone_repository(path, access)
    if os.path.isfile(path):
        yield path
    else:
        # As Kyverno does: hidden folders are entered, links to folders are not.
        found = walk_folder(path, lambda name: name == file_name, lambda name: name != ".git")
        yield from map(os.path.normpath, found)


def load_cases(paths: Iterable[str]) -> tuple[list[TestCase], dict[str, str]]:
    """The tests of all files, and what is wrong with those that cannot be read."""
    cases: list[TestCase] = []
    problems: dict[str, str] = {}
    for path in paths:
        try:
            cases += _load_file(path)
        except LictorError as error:
            problems[path] = str(error)
    return cases, problems


def _load_file(path: str) -> Iterator[TestCase]:
    text = read_file(path)
    try:
        tests = load_tests(text.content, text.path)
    except LoadError as error:
        if not is_older_form(text.content, text.path):
            raise
        raise LoadError(f"{error.message}\n{hint_at_fix(path)}", where=error.where) from error
    yield from (TestCase(path, test.record) for test in tests)


def hint_at_fix(path: str) -> str:
    """What to do with a test file of an older form."""
    folder, name = os.path.split(path)
    other = "" if name == TEST_FILE else f" --file-name {name}"
    return (
        "this is an older form of test files; "
        f"`lictor fix test {folder or '.'}{other} --save` brings it up to date"
    )


class CaseInputs(msgspec.Struct, frozen=True):
    """What a test gives."""

    values: GivenValues
    caller: Caller | None
    policies: LoadedPolicies
    resources: list[JsonObject]
    targets: list[JsonObject]
    given: GivenObjects
    exceptions: tuple[PolicyRecord, ...]
    # The operations that rows of the test name, beside that of the values.
    operations: tuple[str, ...] = ()
    # By the mode of the policies that evaluate them.
    payloads: Mapping[str, tuple[Payload, ...]] = {}
    # Answers what policies look up, from the files of the test or from a cluster.
    make_lookups: Callable[[GivenValues, GivenObjects], Lookups] = OfflineLookups


class CaseReader:
    """Loads the files of one test, and reports its progress."""

    def __init__(self, case: TestCase, print_line: PrintLine, note: Note) -> None:
        self._case = case
        self._test = case.test
        self._print_line = print_line
        self._note = note
        self._read: dict[str, tuple[JsonObject, ...]] = {}

    def load(self) -> CaseInputs:
        """Everything; raises LictorError where something cannot be read."""
        self._print_line("  Loading values/variables ...")
        values = GivenValues(self._load_values())
        caller = self._load_caller()
        policies = self._load_policies()
        self._print_line("  Loading resources ...")
        resources = self._load_resources(self._test.resources)
        payloads = self._load_payloads()
        targets = self._load_resources(self._test.target_resources)
        given = self._collect_objects(resources, targets, policies)
        self._print_line("  Loading exceptions ...")
        exceptions = load_exceptions(map(read_file, self._case.resolve(self._test.exceptions)))
        return CaseInputs(
            values=values,
            caller=caller,
            policies=policies,
            resources=resources,
            targets=targets,
            given=given,
            exceptions=exceptions,
            operations=self._list_operations(),
            payloads=payloads,
        )

    def _list_operations(self) -> tuple[str, ...]:
        rows = [row for row in self._test.results if row.operation]
        if any(row.is_deleting_policy for row in rows):
            raise LictorError("results: operation is not supported for deleting policies")
        return tuple(dict.fromkeys(row.operation for row in rows))

    def read_expected(self, path: str) -> tuple[JsonObject, ...]:
        """The objects of a file that a row names."""
        if path not in self._read:
            text = read_any(self._case.locate(path))
            self._read[path] = tuple(load_resources(text.content, text.path))
        return self._read[path]

    def _load_values(self) -> ValuesSpec | None:
        test = self._test
        if test.values is not None or not test.variables:
            return test.values
        return load_values_file(self._case.locate(test.variables))

    def _load_caller(self) -> Caller | None:
        if not self._test.userinfo:
            return None
        self._print_line("  Loading user infos ...")
        return load_caller(self._case.locate(self._test.userinfo))

    def _load_policies(self) -> LoadedPolicies:
        self._print_line("  Loading policies ...")
        policies = load_policy_files(read_policies(self._case.resolve(self._test.policies)))
        for warning in policies.warnings:
            self._print_line(f"  WARNING: {warning}")
        self._note(policies.notes)
        for policy in policies.unusable:
            if policy.is_later:
                raise LictorError(f"{policy.kind} {policy.name}: {policy.reason}")
            self._print_line(f"  ERROR: {policy.reason}")
        return policies

    def _load_resources(self, paths: Iterable[str]) -> list[JsonObject]:
        """Each resource once: of two with one name, the first counts."""
        found: dict[tuple[str, ...], JsonObject] = {}
        for text in read_resource_texts(self._case.resolve(paths), self._print_line):
            for resource in load_resources(text.content, text.path):
                api_version, kind, namespace, name = key_of(resource)
                key = (api_version.rpartition("/")[0], kind, namespace, name)
                if key in found:
                    self._print_line(
                        f"  warning: found duplicated resource {kind} {name} {namespace}"
                    )
                found.setdefault(key, resource)
        return list(found.values())

    def _load_payloads(self) -> dict[str, tuple[Payload, ...]]:
        test = self._test
        named = {
            "JSON": test.json_payloads or ((test.json_payload,) if test.json_payload else ()),
            "HTTP": test.http_payloads,
            "Envoy": test.envoy_payloads,
        }
        loaded = {}
        for mode, paths in named.items():
            if paths:
                self._print_line(
                    f"  Loading {mode} {'payload' if mode == 'JSON' else 'payloads'} ..."
                )
                loaded[mode] = tuple(p for path in paths for p in self._load_payload(path))
        return loaded

    def _load_payload(self, path: str) -> Iterator[Payload]:
        # Rows name it as the test does, relative to any folder.
        for payload in load_payloads(self._case.resolve([path])):
            yield replace(payload, path=path)

    def _collect_objects(
        self, resources: list[JsonObject], targets: list[JsonObject], policies: LoadedPolicies
    ) -> GivenObjects:
        test = self._test
        parameters = self._load_resources(test.param_resources)
        known = (*resources, *targets, *parameters)
        given = GivenObjects(
            objects=(*known, *self._load_clone_sources()),
            params=tuple(parameters),
            crds=(*policies.crds, *_list_definitions(known)),
        )
        if test.cluster_resources:
            given = self._add_cluster(given, known)
        answers = load_answers(
            test.api_call_responses, test.global_context_entries, self.read_expected
        )
        given = replace(given, answers=answers)
        if test.context:
            given = load_context(self._case.locate(test.context), given)
        return given

    def _add_cluster(self, given: GivenObjects, known: tuple[JsonObject, ...]) -> GivenObjects:
        objects: list[JsonObject] = []
        definitions: list[JsonObject] = []
        for path in self._case.resolve(self._test.cluster_resources):
            spec = load_cluster_resources(path)
            objects += spec.resources
            definitions += load_definitions(self._case.resolve(spec.crds))
        definitions += _list_definitions(objects)
        return replace(given, cluster=(*known, *objects), crds=(*given.crds, *definitions))

    def _load_clone_sources(self) -> Iterator[JsonObject]:
        names = dict.fromkeys(row.clone_source_resource for row in self._test.results)
        for name in filter(None, names):
            try:
                yield from self.read_expected(name)
            except LictorError as error:
                self._print_line(f"  failed to read {name} ({error})")


def _list_definitions(objects: Iterable[JsonObject]) -> Iterator[JsonObject]:
    return (found for found in objects if found.get("kind") == "CustomResourceDefinition")


class TestSelector(msgspec.Struct, frozen=True):
    """A test-case selector taken apart."""

    policies: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def named_resources(self) -> tuple[str, ...]:
        """The resources to look at instead of those that the file names."""
        # A selector with a fault selects, but replaces nothing; a star ends the list.
        if self.errors:
            return ()
        end = self.resources.index("*") if "*" in self.resources else len(self.resources)
        return self.resources[:end]


def parse_selector(text: str) -> TestSelector:
    """Take a selector apart; what is wrong with it goes to `errors`."""
    found: dict[str, list[str]] = {"policy": [], "rule": [], "resource": []}
    errors = []
    for part in text.split(",") if text else ():
        pieces = part.split("=")
        key = pieces[0].strip()
        if len(pieces) != 2:
            errors.append(
                f"Invalid test-case-selector argument ({part}). "
                "Parameter must be in the form `<key>=<value>`."
            )
        elif key in found:
            found[key].append(pieces[1].strip())
        else:
            errors.append(
                f"Invalid test-case-selector ({part}). "
                "Parameter can only be policy, rule or resource."
            )
    policies, rules, resources = (tuple(names) for names in found.values())
    return TestSelector(policies, rules, resources, tuple(errors))


def compile_selector(selector: TestSelector) -> Callable[[TestResult], bool]:
    """A test for results: every part of the selector must fit; a result without a name fits."""
    policies = [compile_wildcard(name) for name in selector.policies]
    rules = [compile_wildcard(name) for name in selector.rules]
    resources = [compile_wildcard(name) for name in selector.resources]

    def selects(result: TestResult) -> bool:
        return (
            (not result.policy or all(fits(result.policy) for fits in policies))
            and (not result.rule or all(fits(result.rule) for fits in rules))
            and (
                not result.resources or all(any(map(fits, result.resources)) for fits in resources)
            )
        )

    return selects
