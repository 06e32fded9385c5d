"""The small languages, one by one: texts and values of any kind into each of them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from sameness import are_same
from strategies.certificates import certificate
from strategies.expressions import call, growing, long_call, query, template
from strategies.json_values import deep, large_subject, long_text, mapping, spoil, text, value
from strategies.patterns import (
    OPERATORS,
    assertion,
    json_patch_text,
    operation,
    overlay,
    resource_pattern,
)
from strategies.policies import excluded_control
from strategies.resources import resource
from strategies.source import Source
from strategies.texts import yaml_text
from targets import Parts, Target
from world import NOW

from lictor.core.errors import EvaluationError, LictorError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.pod_security import compile_pod_security
from lictor.core.lang.assertion import compile_assertion
from lictor.core.lang.condition import compile_operator, compile_operator_with
from lictor.core.lang.duration import format_duration, parse_duration
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.gotime import parse_rfc3339, parse_time
from lictor.core.lang.image_reference import parse_image
from lictor.core.lang.jmespath import compile_query, parse_query, render_query
from lictor.core.lang.json_type import merge_dotted
from lictor.core.lang.kind_selector import compile_kind_selector, parse_kind_selector
from lictor.core.lang.label_selector import Requirement, compile_label_selector
from lictor.core.lang.patch import (
    ConditionNotMet,
    compile_json_patch,
    compile_overlay,
    merge_strategic,
    parse_json_patch,
)
from lictor.core.lang.patch.pointer import diff
from lictor.core.lang.pattern import Mismatch, compile_pattern
from lictor.core.lang.quantity import parse_quantity
from lictor.core.lang.random_text import make_random_text
from lictor.core.lang.regex import compile_regex, compile_template, replace_matches
from lictor.core.lang.semver import parse_range, parse_version
from lictor.core.lang.template import compile_document
from lictor.core.lang.url import is_external_url
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.model.policy import PodSecurityStandard
from lictor.core.raw import Json


def _now() -> datetime:
    return NOW


def _context(source: Source) -> dict[str, Json]:
    return {
        "request": {"object": resource(source), "operation": source.pick(("CREATE", "DELETE"))},
        "element": value(source),
        "a": value(source, 2),
        "b": {"name": text(source)},
        "name": text(source),
    }


def _run_query(query_text: str, subject: Json) -> None:
    compiled = compile_query(query_text, now=_now, choose=lambda count: count // 2)
    # The command line, which alone draws trees, tells of those that are too deep.
    with suppress(RecursionError):
        parse_query(query_text)
        render_query(query_text)
    answers = []
    for _ in range(2):
        try:
            answers.append(compiled(subject))
        except EvaluationError as error:
            answers.append(str(error))
    assert are_same(answers[0], answers[1]), "two runs differ"


def _make_call(source: Source) -> Parts:
    return {"query_text": call(source, 1), "subject": _context(source)}


def _run_growth(query_text: str, subject: Json) -> None:
    Expressions(_now).query(query_text)({"a": subject, "b": subject})


def _make_growth(source: Source) -> Parts:
    return {"query_text": growing(source), "subject": value(source, 1)}


def _make_certificate(source: Source) -> Parts:
    return {"query_text": "x509_decode(@)", "subject": certificate(source)}


def _make_long_call(source: Source) -> Parts:
    return {"query_text": long_call(source), "subject": large_subject(source)}


def _make_query(source: Source) -> Parts:
    made = long_text(source) if source.chance(1) else query(source)
    return {"query_text": made, "subject": _context(source) if source.chance(90) else value(source)}


def _fill_template(document: Json, scope: Mapping[str, Json]) -> None:
    expressions = Expressions(_now)
    compiled = compile_document(document, lambda found, _: expressions.variable(found))
    made = compiled.fill(scope)
    if isinstance(document, dict):
        assert isinstance(made, dict)
    assert not compiled.is_constant or are_same(made, compiled.constant)


def _make_template(source: Source) -> Parts:
    dice = source.random()
    if dice < 0.02:
        document: Json = long_text(source)
    elif dice < 0.03:
        document = template(source) * source.randrange(1, 800)
    elif dice < 0.7:
        document = template(source)
    else:
        document = spoil(source, {template(source): [template(source)], "a": template(source)}, 5)
    return {"document": document, "scope": _context(source)}


def _fit_pattern(pattern: Json, subject: Json) -> None:
    fit = compile_pattern(pattern)
    assert _tell(fit(subject)) == _tell(fit(subject)), "two runs differ"


def _tell(mismatch: Mismatch | None) -> tuple[str, str, bool] | None:
    if mismatch is None:
        return None
    assert type(mismatch.reason) is str
    return mismatch.path, mismatch.reason, mismatch.skip


def _make_pattern(source: Source) -> Parts:
    subject = resource(source) if source.chance(85) else value(source)
    if source.chance(1):
        subject = large_subject(source)
        leaf = long_text(source) if source.chance(50) else text(source)
        return {"pattern": {"long": leaf, "other": leaf}, "subject": subject}
    return {"pattern": resource_pattern(source), "subject": subject}


def _scalar_pattern(source: Source) -> Parts:
    make = long_text if source.chance(1) else text
    return {"pattern": make(source), "subject": value(source, 1)}


def _compare(operator: str, key: Json, wanted: Json) -> None:
    late = _answer(lambda: compile_operator(operator)(key, wanted))
    early = _answer(lambda: compile_operator_with(operator, wanted)(key))
    assert late == early, f"the two forms of {operator} differ: {late} and {early}"


def _answer(ask: Callable[[], bool]) -> bool | str:
    try:
        found = ask()
    except LictorError as error:
        return type(error).__name__
    assert isinstance(found, bool), f"{found!r} is no boolean"
    return found


def _make_comparison(source: Source) -> Parts:
    operator = source.pick(OPERATORS) if source.chance(98) else text(source)
    if source.chance(1):
        large = tuple(large_subject(source).values())
        return {"operator": operator, "key": source.pick(large), "wanted": source.pick(large)}
    shape = (lambda s: value(s, 2)) if source.chance(50) else text
    return {"operator": operator, "key": shape(source), "wanted": shape(source)}


def _lay_over(patch: Json, subject: Json) -> None:
    lay = compile_overlay(patch)
    try:
        once = lay(subject)
    except ConditionNotMet:
        return
    assert are_same(once, lay(subject)), "two runs differ"
    # A patch that says the same again may still move list elements, but never fails.
    lay(once)


def _patch_json(operations: Json, subject: Json) -> None:
    patch = compile_json_patch(operations)
    assert are_same(patch(subject), patch(subject)), "two runs differ"


def _patch_text(patch: str, subject: Json) -> None:
    _patch_json(parse_json_patch(patch), subject)


def _merge(patch: Json, subject: Json) -> None:
    merged = merge_strategic(subject, patch)
    assert isinstance(merged, dict)


def _differ(before: Json, after: Json) -> None:
    operations = diff(before, after)
    if isinstance(before, dict) and isinstance(after, dict):
        assert are_same(compile_json_patch(operations)(before), after), "the patch misses"
    assert not diff(after, after)


def _make_pair(source: Source) -> Parts:
    before = resource(source) if source.chance(70) else mapping(source)
    after = spoil(source, before, 6) if source.chance(80) else mapping(source)
    return {"before": before, "after": after}


def _assert_tree(tree: Json, subject: Json, bindings: Mapping[str, Json]) -> None:
    mismatches = compile_assertion(tree, now=_now)(subject, bindings)
    for mismatch in mismatches:
        str(mismatch)


def _make_assertion(source: Source) -> Parts:
    return {
        "tree": assertion(source),
        "subject": _context(source),
        "bindings": {"x": value(source)},
    }


def _judge_pod(level: str, version: str, controls: list[Json], subject: Json) -> None:
    exclude = [
        PodSecurityStandard(
            control_name=control["controlName"],
            images=tuple(control.get("images", ())),
            restricted_field=control.get("restrictedField", ""),
            values=tuple(control.get("values", ())),
        )
        for control in controls
    ]
    judge = compile_pod_security(level, version, exclude)
    for violation in judge(subject):
        str(violation)


def _make_pod(source: Source) -> Parts:
    return {
        "level": source.pick(("baseline", "restricted", "privileged", "", "x")),
        "version": source.pick(("latest", "v1.24", "", "x", text(source))),
        "controls": source.several(excluded_control, 2),
        "subject": resource(source) if source.chance(90) else value(source),
    }


def _read_all(word: str, other: str) -> None:
    """Every reader of a single text; each raises what it documents, or nothing."""
    for read in _READERS:
        try:
            read(word, other)
        except (LictorError, ValueError):
            continue


_READERS: tuple[Callable[[str, str], object], ...] = (
    lambda word, _: str(parse_quantity(word)),
    lambda word, other: parse_quantity(word).add(parse_quantity(other)),
    lambda word, _: format_duration(parse_duration(word)),
    lambda word, _: str(parse_rfc3339(word)),
    parse_time,
    lambda word, _: parse_version(word),
    lambda word, other: parse_range(word)(parse_version(other)),
    lambda word, _: parse_image(word).reference,
    lambda word, other: compile_regex(word).search(other),
    lambda word, other: replace_matches(word, other, compile_template(other)),
    lambda word, other: compile_wildcard(word)(other),
    lambda word, _: make_random_text(word, lambda count: count - 1),
    lambda word, _: is_external_url(word, lambda _: ["10.0.0.1"]),
    lambda word, other: compile_kind_selector(parse_kind_selector(word))("", "v1", other, ""),
    lambda word, other: compile_label_selector({word: other}, ())({word: other}),
    lambda word, other: compile_label_selector({}, [Requirement(word, "In", (other,))])({}),
    lambda word, other: merge_dotted({"a": {}}, {word: other}),
    lambda word, _: dump_go_json({word: word}),
)


def _make_words(source: Source) -> Parts:
    make = long_text if source.chance(2) else text
    return {"word": make(source), "other": make(source)}


def _make_subject(source: Source) -> Json:
    return deep(source) if source.chance(1) else resource(source)


LANG_TARGETS = (
    Target("lang.query", 12, _make_query, _run_query),
    Target("lang.function", 14, _make_call, _run_query),
    Target("lang.query-growth", 2, _make_growth, _run_growth),
    Target("lang.certificate", 3, _make_certificate, _run_query),
    Target("lang.function-long", 4, _make_long_call, _run_query),
    Target("lang.template", 8, _make_template, _fill_template),
    Target("lang.pattern", 10, _make_pattern, _fit_pattern),
    Target("lang.pattern-scalar", 6, _scalar_pattern, _fit_pattern),
    Target("lang.condition", 8, _make_comparison, _compare),
    Target(
        "lang.overlay",
        8,
        lambda s: {"patch": overlay(s), "subject": _make_subject(s)},
        _lay_over,
    ),
    Target(
        "lang.json-patch",
        5,
        lambda s: {"operations": s.several(operation, 4), "subject": _make_subject(s)},
        _patch_json,
    ),
    Target(
        "lang.json-patch-text",
        3,
        lambda s: {"patch": json_patch_text(s), "subject": _make_subject(s)},
        _patch_text,
    ),
    Target("lang.merge", 5, lambda s: {"patch": overlay(s), "subject": _make_subject(s)}, _merge),
    Target("lang.diff", 5, _make_pair, _differ),
    Target("lang.assertion", 7, _make_assertion, _assert_tree),
    Target("lang.pod-security", 6, _make_pod, _judge_pod),
    Target("lang.yaml-text", 4, lambda s: {"text": yaml_text(s)}, parse_yaml_text, (ValueError,)),
    Target("lang.words", 10, _make_words, _read_all, ()),
)
