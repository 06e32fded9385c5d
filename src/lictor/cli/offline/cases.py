"""Test files found, and run: what their policies say about their resources."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lictor.assembly import compile_documents
from lictor.cli.offline.inputs import (
    load_caller,
    load_cluster_objects,
    load_context,
    load_values_file,
    read_resource_texts,
)
from lictor.cli.offline.judgement import Judge, find_target
from lictor.cli.offline.lookups import GivenObjects, OfflineLookups
from lictor.cli.offline.policies import LoadedPolicies, load_exceptions, load_policy_files
from lictor.cli.offline.repositories import GitAccess, clone_repository, is_repository_url
from lictor.cli.offline.requests import World
from lictor.cli.offline.resources import load_resources
from lictor.cli.offline.responses import Answers, key_of, list_responses
from lictor.cli.offline.values import GivenValues
from lictor.cli.sources import read_any, read_file, read_policies, resolve_path
from lictor.engine import Engine
from lictor.errors import LictorError, LoadError
from lictor.load.test_files import load_tests
from lictor.model.offline import Test, ValuesSpec
from lictor.model.request import Caller
from lictor.raw import JsonObject

Say = Callable[[str], None]


class TestCase(msgspec.Struct, frozen=True):
    """One Test document, and the file that it stands in."""

    # pytest must not take this for a test class.
    __test__ = False

    path: str
    test: Test

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def resolve(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths as seen from the folder of the file."""
        return tuple(resolve_path(path, self.folder) for path in paths)


def find_test_files(path: str, file_name: str, access: GitAccess) -> Iterator[str]:
    """The test files below a folder or in a repository, in the order of their names."""
    if is_repository_url(path, branch=access.branch):
        root, folder = clone_repository(path, access)
        yield from _walk(os.path.join(root, folder), file_name)
    elif os.path.isfile(path):
        yield path
    else:
        yield from _walk(os.path.normpath(path), file_name)


def load_cases(paths: Iterable[str]) -> tuple[list[TestCase], dict[str, str]]:
    """The tests of all files, and what is wrong with those that cannot be read."""
    cases: list[TestCase] = []
    problems: dict[str, str] = {}
    for path in paths:
        try:
            text = read_file(path)
            cases += (TestCase(path, t.record) for t in load_tests(text.content, text.path))
        except LictorError as error:
            problems[path] = str(error)
    return cases, problems


class CaseRun:
    """One test case: loaded, judged, ready to be compared with what it expects."""

    def __init__(self, case: TestCase, say: Say) -> None:
        self._case = case
        self._say = say
        self._read: dict[str, tuple[JsonObject, ...]] = {}

    def run(self) -> Answers:
        """Judge every resource by every policy; raises LictorError where that is impossible."""
        case = self._case
        self._say("  Loading values/variables ...")
        values = GivenValues(self._load_values())
        caller = self._load_caller()
        policies = self._load_policies()
        self._say("  Loading resources ...")
        resources = self._load_resources(case.test.resources)
        targets = self._load_resources(case.test.target_resources)
        given = self._collect_objects(resources, targets)
        self._say("  Loading exceptions ...")
        exceptions = load_exceptions(map(read_file, case.resolve(case.test.exceptions)))
        self._say(
            f"  Applying {_count(len(policies.usable), 'policy', 'policies')} to "
            f"{_count(len(resources), 'resource', 'resources')} with "
            f"{_count(len(exceptions), 'exception', 'exceptions')} ..."
        )
        lookups = OfflineLookups(values, given)
        programs = compile_documents(policies.usable, exceptions=exceptions, lookups=lookups)
        world = World(values, caller, _read_namespace_labels(given))
        return self._judge(Engine(programs), world, policies, resources, targets)

    def _judge(
        self,
        engine: Engine,
        world: World,
        policies: LoadedPolicies,
        resources: list[JsonObject],
        targets: list[JsonObject],
    ) -> Answers:
        answers = Answers()
        for resource in resources:
            verdict = engine.evaluate(world.make_request(resource), adapt=world.adapt)
            answers.triggers[key_of(resource)] = list_responses(verdict, policies.usable)
        for target in targets:
            key = key_of(target)
            found = [
                response
                for responses in answers.triggers.values()
                for response in responses
                if find_target(response, key) is not None
            ]
            if found:
                answers.targets[key] = found
        return answers

    def judge_with(self, answers: Answers) -> Judge:
        """What compares the answers with the rows of this test."""
        return Judge(answers, self._read_expected, self._case.path)

    def _load_values(self) -> ValuesSpec | None:
        test = self._case.test
        if test.values is not None or not test.variables:
            return test.values
        return load_values_file(resolve_path(test.variables, self._case.folder))

    def _load_caller(self) -> Caller | None:
        if not self._case.test.userinfo:
            return None
        self._say("  Loading user infos ...")
        return load_caller(resolve_path(self._case.test.userinfo, self._case.folder))

    def _load_policies(self) -> LoadedPolicies:
        self._say("  Loading policies ...")
        policies = load_policy_files(read_policies(self._case.resolve(self._case.test.policies)))
        for warning in policies.warnings:
            self._say(f"  WARNING: {warning}")
        for policy in policies.unusable:
            if policy.is_later:
                raise LictorError(f"{policy.kind} {policy.name}: {policy.reason}")
            self._say(f"  ERROR: {policy.reason}")
        return policies

    def _load_resources(self, paths: Iterable[str]) -> list[JsonObject]:
        """Each resource once: of two with one name, the first counts."""
        found: dict[tuple[str, ...], JsonObject] = {}
        for text in read_resource_texts(self._case.resolve(paths), self._say):
            for resource in load_resources(text.content, text.path):
                api_version, kind, namespace, name = key_of(resource)
                key = (api_version.rpartition("/")[0], kind, namespace, name)
                if key in found:
                    self._say(f"  warning: found duplicated resource {kind} {name} {namespace}")
                found.setdefault(key, resource)
        return list(found.values())

    def _collect_objects(
        self, resources: list[JsonObject], targets: list[JsonObject]
    ) -> GivenObjects:
        test = self._case.test
        parameters = self._load_resources(test.param_resources)
        known = (*resources, *targets, *parameters)
        given = GivenObjects(objects=(*known, *self._load_clone_sources()))
        if test.cluster_resources:
            paths = self._case.resolve(test.cluster_resources)
            made_up = [found for path in paths for found in load_cluster_objects(path)]
            given = replace(given, cluster=(*known, *made_up))
        if test.context:
            given = load_context(resolve_path(test.context, self._case.folder), given)
        return given

    def _load_clone_sources(self) -> Iterator[JsonObject]:
        names = dict.fromkeys(row.clone_source_resource for row in self._case.test.results)
        for name in filter(None, names):
            try:
                yield from self._read_expected(name)
            except LictorError as error:
                self._say(f"  failed to read {name} ({error})")

    def _read_expected(self, path: str) -> tuple[JsonObject, ...]:
        if path not in self._read:
            text = read_any(resolve_path(path, self._case.folder))
            self._read[path] = tuple(load_resources(text.content, text.path))
        return self._read[path]


def _walk(folder: str, file_name: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=folder) from error
    for name in names:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isdir(path) and not os.path.islink(path):
            yield from _walk(path, file_name)
        elif name == file_name:
            yield path


def _read_namespace_labels(given: GivenObjects) -> dict[str, dict[str, str]]:
    labels = {}
    for found in given.cluster or ():
        api_version, kind, _, name = key_of(found)
        metadata = found.get("metadata")
        if (api_version, kind) == ("v1", "Namespace") and isinstance(metadata, dict):
            own = metadata.get("labels")
            labels[name] = own if isinstance(own, dict) else {}
    return labels


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
