"""A test, run: what its policies say about its resources, ready to be compared."""

from collections.abc import Iterator
from itertools import chain

from msgspec.structs import replace

from lictor.engine import Engine
from lictor.model.request import Request
from lictor.offline.case_inputs import CaseInputs, CaseReader, Say
from lictor.offline.cases import TestCase
from lictor.offline.deletions import compile_deletions
from lictor.offline.judgement import Judge, find_target
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.programs import compile_for_payloads, compile_given, watch_for_guesses
from lictor.offline.requests import World
from lictor.offline.responses import (
    Answers,
    ResourceKey,
    Response,
    key_of,
    list_responses,
    list_speakers,
)
from lictor.raw import JsonObject


class CaseRun:
    """One test case: loaded, judged, ready to be compared with what it expects."""

    def __init__(self, case: TestCase, say: Say) -> None:
        self._case = case
        self._say = say
        self._reader = CaseReader(case, say)

    def run(self) -> Answers:
        """Judge every resource by every policy; raises LictorError where that is impossible."""
        inputs = self._reader.load()
        self._say(
            f"  Applying {_count(len(inputs.policies), 'policy', 'policies')} to "
            f"{_count(len(inputs.resources), 'resource', 'resources')} with "
            f"{_count(len(inputs.exceptions), 'exception', 'exceptions')} ..."
        )
        self._tell_guesses(inputs)
        answers = Answers()
        for key, responses in chain(_judge_resources(inputs), _judge_payloads(inputs)):
            # A file may hold several payloads, all under its name.
            answers.triggers.setdefault(key, []).extend(responses)
        answers.targets.update(_find_targets(answers, inputs.targets))
        return answers

    def judge_with(self, answers: Answers) -> Judge:
        """What compares the answers with the rows of this test."""
        return Judge(answers, self._reader.read_expected, self._case.path)

    def _tell_guesses(self, inputs: CaseInputs) -> None:
        tell = watch_for_guesses(inputs.policies, inputs.given)
        world = World(inputs.values)
        told = (tell(world.make_request(resource).kind) for resource in inputs.resources)
        for message in dict.fromkeys(filter(None, told)):
            self._say(f"  note: {message}")


def _judge_resources(inputs: CaseInputs) -> Iterator[tuple[ResourceKey, list[Response]]]:
    policies, exceptions, given = inputs.policies, inputs.exceptions, inputs.given
    lookups = OfflineLookups(inputs.values, given)
    engine = Engine(compile_given(policies, exceptions, lookups, given))
    judge_deletions = compile_deletions(policies, exceptions, lookups, given)
    speakers = list_speakers(policies.usable, policies.cel)
    world = World(inputs.values, inputs.caller, _read_namespace_labels(given))
    for resource in inputs.resources:
        request = world.make_request(resource)
        verdict = engine.evaluate(request, adapt=world.adapt)
        results = (*verdict.results, *judge_deletions(request))
        yield key_of(resource), list_responses(replace(verdict, results=results), speakers)


def _judge_payloads(inputs: CaseInputs) -> Iterator[tuple[ResourceKey, list[Response]]]:
    cel, given = inputs.policies.cel, inputs.given
    lookups = OfflineLookups(inputs.values, given)
    speakers = list_speakers((), cel)
    judge_deletions = compile_deletions(inputs.policies, inputs.exceptions, lookups, given)
    for mode, payloads in inputs.payloads.items():
        chosen = cel.of_mode(mode)
        engine = Engine(compile_for_payloads(chosen, inputs.exceptions, lookups, given))
        for payload in payloads:
            verdict = engine.evaluate(payload.make_request(mode))
            deletions = judge_deletions(Request.of(payload.body)) if mode == "JSON" else ()
            verdict = replace(verdict, results=(*verdict.results, *deletions))
            yield ("", "", "", payload.path), list_responses(verdict, speakers)


def _find_targets(
    answers: Answers, targets: list[JsonObject]
) -> Iterator[tuple[ResourceKey, list[Response]]]:
    for target in targets:
        key = key_of(target)
        found = [
            response
            for responses in answers.triggers.values()
            for response in responses
            if find_target(response, key) is not None
        ]
        if found:
            yield key, found


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
