"""The whole house: policies as text, resources as JSON, every operation, every report."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from strategies.cel import cel_policies
from strategies.expressions import template
from strategies.json_values import mapping, spoil, text, value
from strategies.policies import cleanup, exception, policy
from strategies.resources import NAMESPACES, large_resource, pod, resource
from strategies.source import Source
from targets import Parts, Target
from world import NOW, OddWorld

from lictor.core.assembly import compile_cleanups, compile_documents, explain
from lictor.core.engine import Engine
from lictor.core.errors import LictorError
from lictor.core.families.classic.explanation import explain_classic
from lictor.core.load.policies import Loaded, load_documents
from lictor.core.model.program import CleanupProgram
from lictor.core.model.request import Caller, Operation, Request
from lictor.core.model.result import Action, Result, RuleType, Status, Verdict
from lictor.core.raw import Json, JsonObject
from lictor.core.report.explanation import (
    Explanation,
    explanation_to_json,
    render_explanation,
)
from lictor.core.report.json_text import render_json
from lictor.core.report.outcome_formats import (
    render_junit,
    render_markdown,
    render_outcomes_json,
    render_outcomes_yaml,
)
from lictor.core.report.outcomes import list_outcomes
from lictor.core.report.policy_report import ReportFormat, ReportOptions, stream_verdicts
from lictor.core.report.resource_name import name_resource
from lictor.core.report.sarif import render_sarif
from lictor.core.report.summary import count_verdicts, render_counts, render_failures
from lictor.core.report.table import render_table
from lictor.lint.exceptions import lint_cleanup, lint_exception
from lictor.lint.policy import lint_policy
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.schema_rules import check_cleanup_schemas, check_rule_schemas


def _write(documents: Sequence[Json]) -> str:
    texts = []
    for document in documents:
        try:
            texts.append(json.dumps(document))
        except (ValueError, RecursionError):
            continue
    return "\n---\n".join(texts)


def _make(source: Source) -> Parts:
    documents = [policy(source) for _ in range(1 + source.count(1))]
    if source.chance(20):
        documents.append(exception(source))
    return {
        "policies": _write(documents),
        "subject": resource(source),
        "old": resource(source) if source.chance(50) else None,
        "caller": _caller(source) if source.chance(50) else None,
        "labels": {"app": text(source)} if source.chance(20) else {},
        "given": mapping(source, 2) if source.chance(10) else {},
        "variables": mapping(source, 2) if source.chance(10) else {},
    }


def _caller(source: Source) -> list[Json]:
    name = source.pick(("alice", "system:serviceaccount:ns:robot", "system:serviceaccount:", ""))
    return [name, source.several(text, 2), source.subset(["ns:admin", "cluster-admin"])]


def _requests(parts: dict[str, Any]) -> list[Request]:
    subject, old, caller = parts["subject"], parts["old"], parts["caller"]
    who = None if caller is None else Caller(caller[0], groups=tuple(caller[1]), roles=caller[2])
    return [
        Request(
            kind=Request.of(subject).kind,
            object=None if operation is Operation.DELETE else subject,
            old_object=subject if operation is Operation.DELETE else before,
            operation=operation,
            caller=who,
            namespace_labels=parts["labels"],
            variables=parts["variables"],
        )
        for operation, before in (
            (Operation.CREATE, None),
            (Operation.UPDATE, old),
            (Operation.DELETE, None),
        )
    ]


def _judge(**parts: Any) -> None:
    loaded = load_documents(parts["policies"], "policies.yaml")
    world = OddWorld(parts["given"])
    first = _judge_twice(loaded, world, parts)
    try:
        _explain(loaded, first, world)
    except LictorError as error:
        _excuse(error)


def _judge_large(**parts: Any) -> None:
    """Without explanations: those show every value that a condition saw, over and over."""
    loaded = load_documents(parts["policies"], "policies.yaml")
    _judge_twice(loaded, OddWorld(parts["given"]), parts)


def _judge_twice(loaded: Loaded, world: OddWorld, parts: dict[str, Any]) -> Request:
    engine = Engine(
        compile_documents(
            loaded.records,
            lookups=world,
        )
    )
    verdicts = [engine.evaluate(request) for request in _requests(parts)]
    for verdict in verdicts:
        _check_verdict(verdict)
    if "random(" not in parts["policies"]:
        again = [engine.evaluate(request) for request in _requests(parts)]
        for verdict, other in zip(verdicts, again, strict=True):
            _compare(verdict.results, other.results)
    _report_or_excuse(verdicts)
    return verdicts[0].request


def _report_or_excuse(verdicts: list[Verdict]) -> None:
    try:
        _report(verdicts)
    except LictorError as error:
        _excuse(error)


def _excuse(error: LictorError) -> None:
    """What no file can hold, such as a number of 400 digits, has no place in a report either."""
    assert any(words in str(error) for words in ("too large", "too deep", "out of range")), error


def _check_verdict(verdict: Verdict) -> None:
    for result in verdict.results:
        assert type(result.message) is str, f"the message is {result.message!r}"
        assert type(result.rule) is str
        assert isinstance(result.status, Status)
        assert isinstance(result.type, RuleType)
        assert isinstance(result.action, Action)
        assert result.patched is None or type(result.patched) is dict
        assert all(type(made) is dict for made in result.generated)
        assert all(type(entry) is str for entry in result.properties.values())
        broken = result.action is Action.ENFORCE and result.status in (Status.FAIL, Status.ERROR)
        assert not (broken and verdict.allowed)
    assert verdict.patched is None or type(verdict.patched) is dict


def _compare(first: Iterable[Result], second: Iterable[Result]) -> None:
    """Two judgements of the same must be the same."""
    one = [(r.rule, r.status, r.message, r.action) for r in first]
    other = [(r.rule, r.status, r.message, r.action) for r in second]
    assert one == other, f"two judgements differ: {one} and {other}"


def _report(verdicts: list[Verdict]) -> None:
    for form in ReportFormat:
        for _ in stream_verdicts(verdicts, ReportOptions(format=form, timestamp=1)):
            pass
    outcomes = list(list_outcomes(verdicts, audit_warn=True))
    render_table(outcomes, detailed=True)
    render_junit(outcomes, detailed=True).encode()
    render_markdown(outcomes, detailed=True)
    render_outcomes_json(outcomes, detailed=True)
    render_outcomes_yaml(outcomes, detailed=True)
    json.loads(render_sarif(verdicts))
    render_counts(count_verdicts(verdicts))
    for verdict in verdicts:
        render_failures(verdict)


def _explain(loaded: Loaded, request: Request, world: OddWorld) -> None:
    for found in loaded.policies:
        told = explain(
            found.record,
            request,
            companions=loaded.records,
            lookups=world,
        )
        _check_verdict(told.verdict)
        rules = explain_classic(found.record, told.heard, told.verdict.results)
        story = Explanation(found.record.metadata.name, name_resource(request.resource), rules)
        assert all(type(line) is str for line in render_explanation(story))
        render_json(explanation_to_json(story))


# --- rules that are broken on purpose


_BROKEN = ("{{ a( }}", "{{ nothing_has_this_name }}", "{{ length(`1`) }}", "{{ no_function(@) }}")


def _break(source: Source) -> dict[str, JsonObject]:
    fault = source.pick(_BROKEN)
    condition = {"key": fault, "operator": "Equals", "value": source.pick(("a", template(source)))}
    senseless = {"key": "a", "operator": "Nonsense", "value": "a"}
    broken = {"all": [source.pick((condition, senseless))]}
    whole = {"validate": {"deny": {"conditions": broken}}}
    forms: tuple[dict[str, JsonObject], ...] = (
        whole,
        {"validate": {"pattern": {"metadata": {"name": fault}}}},
        {"validate": {"anyPattern": [{"metadata": {"name": fault}}]}},
        {"validate": {"assert": {"(a(": 1}}},
        {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": fault}}}}},
        {"mutate": {"patchesJson6902": f'[{{"op": "add", "path": "/a", "value": "{fault}"}}]'}},
        {"mutate": {"patchesJson6902": source.pick(("[", "a: b", '[{"op": "x", "path": "/a"}]'))}},
        {"generate": {"kind": "ConfigMap", "name": fault, "data": {"a": "b"}}},
        {"validate": {"pattern": {"a": "b"}}, "preconditions": broken},
        {"validate": {"foreach": [{"list": "`[1]`", "deny": {"conditions": broken}}]}},
        {"validate": {"podSecurity": {"level": "baseline", "version": "nonsense"}}},
    )
    return source.pick(forms)


def _make_broken(source: Source) -> Parts:
    namespace = source.pick(NAMESPACES)
    subject = pod(source)
    subject["metadata"] = {"name": "a", "namespace": namespace}
    rule = {"name": "broken", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}
    spec: dict[str, Json] = {"rules": [rule | _break(source)]}
    if source.chance(50):
        spec["validationFailureAction"] = "Enforce"
    else:
        spec["validationFailureActionOverrides"] = [
            {"action": "Enforce", "namespaces": [namespace]}
        ]
    head = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}}
    return {"policies": _write([head | {"spec": spec}]), "subject": subject}


def _judge_broken(policies: str, subject: JsonObject) -> None:
    loaded = load_documents(policies, "policies.yaml")
    programs = compile_documents([found.record for found in loaded.policies])
    if loaded.problems:
        return  # half a surrogate pair in the text, which no reader takes
    verdict = Engine(programs).evaluate(subject)
    statuses = [result.status for result in verdict.results]
    assert statuses, "a rule that matches said nothing"
    assert Status.PASS not in statuses, "a broken rule passed"
    assert Status.SKIP not in statuses, "a broken rule was skipped"
    assert not verdict.allowed, "an enforced rule that could not be decided was allowed"
    _check_verdict(verdict)
    _report([verdict])


# --- cleanup policies


def _make_cleanup(source: Source) -> Parts:
    return {"policies": _write([cleanup(source)]), "subject": resource(source)}


def _sweep(policies: str, subject: JsonObject) -> None:
    loaded = load_documents(policies, "policies.yaml")
    programs = compile_cleanups(loaded.records, lookups=OddWorld({}))
    for program in programs:
        _run_cleanup(program, subject)


def _run_cleanup(program: CleanupProgram, subject: JsonObject) -> None:
    try:
        assert isinstance(program.concerns(Request.of(subject)), bool)
    except LictorError as error:
        str(error)
    assert program.next_run(NOW) > NOW


def _make_any(source: Source) -> Parts:
    """A resource that nobody would send, under a policy that looks at all of it."""
    made = _make(source)
    subject = value(source)
    return {**made, "subject": subject if isinstance(subject, dict) else {"metadata": subject}}


def _make_cel(source: Source) -> Parts:
    made = _make(source)
    return {**made, "policies": _write(cel_policies(source)), "given": {}, "variables": {}}


def _judge_cel(**parts: Any) -> None:
    loaded = load_documents(parts["policies"], "policies.yaml")
    engine = Engine(
        compile_documents(
            loaded.records,
            lookups=OddWorld({}),
        )
    )
    verdicts = [engine.evaluate(request) for request in _requests(parts)]
    for verdict in verdicts:
        _check_verdict(verdict)
    _report_or_excuse(verdicts)


def _make_large(source: Source) -> Parts:
    return {**_make(source), "subject": large_resource(source)}


def _make_lint(source: Source) -> Parts:
    body = spoil(source, source.make((policy, policy, exception, cleanup)), 0.5)
    return {"body": value(source) if source.chance(3) else body}


def _lint(body: Json) -> None:
    schemas = KnownSchemas()
    found = (
        *lint_policy(body, schemas),
        *lint_cleanup(body, schemas),
        *lint_exception(body, {}, schemas),
        *check_rule_schemas(body, schemas),
        *check_cleanup_schemas(body, schemas),
    )
    for fault in found:
        assert type(fault.message) is str


ENGINE_TARGETS = (
    Target("lint", 8, _make_lint, _lint, ()),
    Target("engine", 40, _make, _judge, ()),
    Target("engine.odd", 6, _make_any, _judge, ()),
    Target("engine.large", 3, _make_large, _judge_large, ()),
    Target("engine.cel", 4, _make_cel, _judge_cel, ()),
    Target("engine.broken", 6, _make_broken, _judge_broken, ()),
    Target("engine.cleanup", 4, _make_cleanup, _sweep),
)
