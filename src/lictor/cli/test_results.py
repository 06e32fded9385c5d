"""Compares the results of policies with the results that a test file expects."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.records import TestResourceSpec, TestResult
from lictor.cli.responses import ResourceKey, TestAnswers, TestedResponse, key_of
from lictor.core.errors import LictorError
from lictor.core.families.registry import registry
from lictor.core.model.result import Result, RuleType, Status
from lictor.core.raw import Json, JsonObject
from lictor.core.report.outcomes import TestOutcome
from lictor.core.report.summary import reported_status
from lictor.core.report.yaml_text import render_yaml

# The reason of a row about a resource that no rule of the policy concerned.
EXCLUDED = "Excluded"

_OWN_LABEL_PREFIX = "generate.kyverno.io/"
_MANAGED_BY = "app.kubernetes.io/managed-by"


def same_resource(actual: JsonObject, expected: JsonObject) -> bool:
    """Whether both are equal, apart from nulls, empty maps and lists, and labels of lictor."""
    return _same(_tidy(_fix_labels(actual)), _tidy(_fix_labels(expected)))


def describe_difference(actual: JsonObject, expected: JsonObject) -> str:
    """The lines in which two resources differ: `-` only in expected, `+` only in actual."""
    import difflib

    wanted, found = (_lines(_fix_labels(resource)) for resource in (expected, actual))
    return "\n".join(difflib.unified_diff(wanted, found, "expected", "actual", lineterm="", n=2))


def _lines(resource: JsonObject) -> list[str]:
    return render_yaml(resource).splitlines()


def _fix_labels(resource: JsonObject) -> JsonObject:
    """A copy without the labels that mark a generated object, but with the one all of them have."""
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    kept = {k: v for k, v in labels.items() if not str(k).startswith(_OWN_LABEL_PREFIX)}
    kept.setdefault(_MANAGED_BY, "kyverno")
    return {**resource, "metadata": {**metadata, "labels": kept}}


def _tidy(node: Json) -> Json:
    if isinstance(node, dict):
        kept = {key: value for key, item in node.items() if (value := _tidy(item)) is not None}
        return kept or None
    if isinstance(node, list):
        return [value for item in node if (value := _tidy(item)) is not None] or None
    return node


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    # To Python, true is 1; to JSON it is not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


# The resources in a file that a test names; raises LictorError.
ReadResources = Callable[[str], Sequence[JsonObject]]

_AUTOGEN_NAMES = ("{}", "autogen-{}", "autogen-cronjob-{}")


class _Finding(msgspec.Struct, frozen=True):
    """How one comparison went."""

    ok: bool
    reason: str
    message: str = ""
    # Why the policy could not decide, where that is what went wrong.
    error: str = ""
    # The file with the expected resource does not speak of this one: nothing was compared.
    unnamed: bool = False


class ResultComparer:
    """Compares answers with expectations, and numbers the outcomes."""

    def __init__(
        self, answers: TestAnswers, read_resources: ReadResources, source: str = ""
    ) -> None:
        self._answers = answers
        self._read = read_resources
        self._source = source
        self._number = 0

    def compare(self, expected: TestResult) -> Iterator[TestOutcome]:
        """The outcomes of one row of `results`."""
        if expected.operation:
            answers = self._answers.by_operation[expected.operation]
            other = ResultComparer(answers, self._read, self._source)
            other._number = self._number
            yield from other.compare(replace(expected, operation=""))
            self._number = other._number
            return
        for keys in self._select(expected):
            outcomes = [each for key in keys for each in self._compare_resource(expected, key)]
            # Other resources of the same name, or of all, need not concern the rule.
            seen = any(each.reason != EXCLUDED for each in outcomes)
            for each in outcomes:
                if each.ok or each.reason != EXCLUDED:
                    yield each
                elif seen:
                    yield replace(each, result=Status.SKIP, ok=True)
                else:
                    yield replace(each, reason=f"Want {expected.result}, got {EXCLUDED}")

    def _select(self, expected: TestResult) -> list[list[ResourceKey]]:
        """The resources that a row is about: a group for each one that it names."""
        known = [*self._answers.targets, *self._answers.triggers]
        chosen = [[key for key in known if _is_named(key, name)] for name in expected.resources]
        chosen += [[key for key in known if _fits(key, spec)] for spec in expected.resource_specs]
        # A row that names nothing, or nothing that is there, speaks of everything.
        return [keys for keys in chosen if keys] or [known]

    def _compare_resource(self, expected: TestResult, key: ResourceKey) -> list[TestOutcome]:
        outcomes: list[TestOutcome] = []
        unnamed = False
        name = expected.policy.split("/")[-1]
        for response in self._answers.triggers.get(key, ()):
            if response.policy.metadata.name != name:
                continue
            for result in _select_rules(expected, response):
                for shown, finding in self._compare(expected, response, result, key):
                    unnamed = unnamed or finding.unnamed
                    if not finding.unnamed:
                        outcomes.append(self._outcome(expected, result.rule, shown, finding))
            if not outcomes and not unnamed:
                outcomes.append(self._excluded(expected, response, key))
        outcomes += self._compare_target(expected, key)
        if not outcomes and not unnamed:
            finding = _Finding(ok=False, reason="Not found", message="Not found")
            outcomes.append(self._outcome(expected, expected.rule, "/".join(key), finding))
        return outcomes

    def _compare(
        self, expected: TestResult, response: TestedResponse, result: Result, key: ResourceKey
    ) -> Iterator[tuple[str, _Finding]]:
        if result.type is RuleType.GENERATION:
            for made in result.generated:
                finding = self._check(expected, result, made, keep_unnamed=True)
                yield f"/{key_of(made)[3]}", finding
            if not result.generated:
                yield "/".join(key), self._check_nothing_generated(expected, result)
            return
        actual = response.patched if result.type is RuleType.MUTATION else response.resource
        yield "/".join(key), self._check(expected, result, actual)

    def _check_nothing_generated(self, expected: TestResult, result: Result) -> _Finding:
        files = expected.generated_files
        if files and reported_status(result) == expected.result == "pass":
            message = f"nothing was generated, expected {', '.join(files)}"
            return _Finding(ok=False, reason="Resource error", message=message)
        return _compare_status(expected, result)

    def _compare_target(self, expected: TestResult, key: ResourceKey) -> list[TestOutcome]:
        outcomes = []
        for response in self._answers.targets.get(key, ()):
            result = find_target(response, key)
            if result is not None and result.target is not None:
                finding = self._check(expected, result, result.target, keep_unnamed=True)
                outcomes.append(self._outcome(expected, result.rule, "/".join(key), finding))
        return outcomes

    def _check(
        self,
        expected: TestResult,
        result: Result,
        actual: JsonObject,
        *,
        keep_unnamed: bool = False,
    ) -> _Finding:
        patched = (expected.patched_resources,) if expected.patched_resources else ()
        kinds = (
            (patched, "PatchedResources", "patched"),
            (expected.generated_files, "GeneratedResource", "generated"),
        )
        for paths, label, word in kinds:
            finding = self._compare_files(paths, label, word, actual) if paths else None
            if finding is None:
                continue
            is_expected = reported_status(result) == expected.result
            if result.status is Status.ERROR and not is_expected and not finding.unnamed:
                # The difference is only what came of it.
                return _tell_status(expected, result)
            if finding.unnamed and (keep_unnamed or expected.fail_on_missing_resources):
                return _Finding(ok=False, reason=finding.reason, message=finding.message)
            return finding
        return _compare_status(expected, result)

    def _compare_files(
        self, paths: Sequence[str], label: str, word: str, actual: JsonObject
    ) -> _Finding | None:
        failed = f"error: failed to load {label} resource"
        try:
            candidates = [found for path in paths for found in self._read(path)]
        except LictorError as error:
            return _Finding(ok=False, reason="Resource error", message=f"{failed} ({error})")
        key = key_of(actual)
        wanted = next((found for found in candidates if key_of(found) == key), None)
        if wanted is None:
            message = f"{failed} (resource with name {key[3]} not found in manifest)"
            return _Finding(ok=False, reason="Resource error", message=message, unnamed=True)
        if same_resource(actual, wanted):
            return None
        message = (
            f"Patched resource didn't match the {word} resource in the test result\n\n"
            f"{describe_difference(actual, wanted)}"
        )
        return _Finding(ok=False, reason="Resource diff", message=message)

    def _outcome(
        self, expected: TestResult, rule: str, resource: str, finding: _Finding
    ) -> TestOutcome:
        self._number += 1
        return TestOutcome(
            id=self._number,
            policy=expected.policy,
            rule=rule,
            resource=resource,
            result=Status.PASS if finding.ok else Status.FAIL,
            reason=finding.reason,
            message=finding.message,
            ok=finding.ok,
            source=self._source,
            error=finding.error,
        )

    def _excluded(
        self, expected: TestResult, response: TestedResponse, key: ResourceKey
    ) -> TestOutcome:
        """No rule concerned the resource: only `skip` expects that."""
        is_expected = expected.result == Status.SKIP
        # A CEL policy has no rules to name: what its own selectors leave out is not refused, and
        # Kyverno's tests write `pass` for it. It is shown as skipped, and not counted as passed.
        left_out = expected.result == Status.PASS and not _has_named_rules(response)
        finding = _Finding(ok=is_expected or left_out, reason=EXCLUDED, message=EXCLUDED)
        outcome = self._outcome(expected, expected.rule, "/".join(key), finding)
        return replace(outcome, result=Status.SKIP) if left_out else outcome


def _compare_status(expected: TestResult, result: Result) -> _Finding:
    if reported_status(result) != expected.result:
        return _tell_status(expected, result)
    return _Finding(ok=True, reason="Ok", message=result.message)


def _tell_status(expected: TestResult, result: Result) -> _Finding:
    reason = f"Want {expected.result}, got {reported_status(result)}"
    error = result.message if result.status is Status.ERROR else ""
    return _Finding(ok=False, reason=reason, message=result.message, error=error)


def find_target(response: TestedResponse, key: ResourceKey) -> Result | None:
    """The first result that changed the object of this key."""
    for result in response.results:
        if result.target is None:
            continue
        found = key_of(result.target)
        # A target without a namespace takes that of the object that was changed.
        if found == (key[0], key[1], key[2] or found[2], key[3]):
            return result
    return None


def _select_rules(expected: TestResult, response: TestedResponse) -> tuple[Result, ...]:
    # Only rules of classic policies have names that authors gave them.
    if not expected.rule or not _has_named_rules(response):
        return response.results
    names = {form.format(expected.rule) for form in _AUTOGEN_NAMES}
    return tuple(result for result in response.results if result.rule in names)


def _has_named_rules(response: TestedResponse) -> bool:
    return registry().of(response.policy).has_named_rules


def _is_named(key: ResourceKey, name: str) -> bool:
    parts = name.split("/")
    if len(parts) == 1:
        return key[3] == name
    return len(parts) == 2 and parts == [key[2], key[3]]


def _fits(key: ResourceKey, spec: TestResourceSpec) -> bool:
    api_version = f"{spec.group}/{spec.version}" if spec.group else spec.version
    return (key[0], key[2], key[3]) == (api_version, spec.namespace, spec.name)
