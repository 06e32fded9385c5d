"""Why each rule said what it said: the answers of its parts, as a tree of text or as JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from lictor.core.evaluate.verify_images.block_verification import SIGNER_WATCH
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.watch import ClosureAnswer
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.policy import Policy, Rule
from lictor.core.model.result import Result, Status
from lictor.core.raw import Json, JsonObject
from lictor.core.report.summary import render_failure
from lictor.core.signatures.records import VerifiedSignature, VerifiedStatement

MAX_SHOWN = 120


class MatchClause(msgspec.Struct, frozen=True):
    """One clause of match or exclude, and whether it fits."""

    path: str
    fits: bool
    wanted: Json = None


class ComparedCondition(msgspec.Struct, frozen=True):
    """One condition: what its key became, and whether it holds."""

    path: str
    key: Json
    operator: str
    value: Json
    holds: bool | None
    error: str = ""


class LoadedEntry(msgspec.Struct, frozen=True):
    """One context entry that was used, and its value or why it has none."""

    name: str
    value: Json = None
    error: str = ""


class EvaluatedExpression(msgspec.Struct, frozen=True):
    """One expression in CEL, or a variable of such: what it answered, or why it has no answer."""

    path: str
    text: str = ""
    value: Json = None
    error: str = ""


class CheckedSigner(msgspec.Struct, frozen=True):
    """One who must have signed an image: what they proved, or why they do not count."""

    # Where the policy names them: `attestors[0].entries[0].keys`.
    path: str
    proved: tuple[str, ...] = ()
    refused: str = ""


class RuleExplanation(msgspec.Struct, frozen=True):
    """Explains one rule; a CEL policy has one explanation per binding and autogen variant."""

    rule: str
    matched: bool
    clauses: tuple[MatchClause, ...] = ()
    context: tuple[LoadedEntry, ...] = ()
    conditions: tuple[ComparedCondition, ...] = ()
    expressions: tuple[EvaluatedExpression, ...] = ()
    signers: tuple[CheckedSigner, ...] = ()
    results: tuple[Result, ...] = ()
    # How the rule is called where it has no name of its own.
    title: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """Explains the result of one policy for one resource."""

    policy: str
    resource: str
    rules: tuple[RuleExplanation, ...] = ()

    @property
    def failed(self) -> "Explanation":
        """The same, with only those rules that are not fine."""
        fine = (Status.PASS, Status.SKIP)
        wrong = (r for r in self.rules if any(each.status not in fine for each in r.results))
        return msgspec.structs.replace(self, rules=tuple(wrong))


def explain_classic(
    policy: Policy,
    _: Sequence[PolicyRecord],
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """Each rule of a classic policy, also those that autogen makes."""
    from lictor.core.families.classic.autogen import expand_rules

    return tuple(explain_rule(rule, recorded, results) for rule in expand_rules(policy))


def explain_results(
    policy: PolicyRecord,
    _: Sequence[PolicyRecord],
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """For kinds that have no explanation of their own: each rule that answered, and its answer."""
    rules = dict.fromkeys(result.rule for result in results)
    if not rules:
        return (RuleExplanation(policy.metadata.name, matched=False),)
    return tuple(
        RuleExplanation(
            rule,
            matched=True,
            expressions=tuple(list_expressions(_select(recorded, rule), lambda _: None)),
            results=tuple(each for each in results if each.rule == rule),
        )
        for rule in rules
    )


# How closures call the whole of what a policy in Wasm is about.
_WASM_ROOT = "spec"


def explain_wasm_policy(
    policy: PolicyRecord,
    _: Sequence[PolicyRecord],
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """Rules, selectors and conditions of a policy, and what its module said."""
    # Of a policy that changes objects, several rules ask the same.
    heard = {each.what: bool(each.answer) for each in recorded if not is_expression(each.what)}
    # Nothing is heard of requests in other namespaces.
    matched = heard.pop(_WASM_ROOT, False)
    paths = {what: what[len(_WASM_ROOT) + 1 :].replace("resourceRules", "rules") for what in heard}
    return (
        RuleExplanation(
            rule="",
            title="policy",
            matched=matched,
            clauses=tuple(
                MatchClause(paths[what], fits, dig(policy.spec, paths[what]))
                for what, fits in heard.items()
            ),
            expressions=tuple(list_expressions(recorded, lambda path: dig(policy.spec, path))),
            results=tuple(results),
        ),
    )


def _select(recorded: Sequence[ClosureAnswer], rule: str) -> list[ClosureAnswer]:
    return [each for each in recorded if each.rule == rule]


def explain_rule(
    rule: Rule, recorded: Sequence[ClosureAnswer], results: Iterable[Result]
) -> RuleExplanation:
    """Explain one rule from what its closures recorded."""
    own = _select(recorded, rule.name)
    clauses = tuple(_clauses(rule, own))
    matched = _answer(clauses, "match", default=True) and not _answer(
        clauses, "exclude", default=False
    )
    return RuleExplanation(
        rule=rule.name,
        matched=matched,
        clauses=clauses,
        context=tuple(_loaded(own)),
        conditions=tuple(_compared(rule, own)),
        expressions=tuple(_evaluated(rule, own)),
        signers=tuple(_checked(own)),
        results=tuple(r for r in results if r.rule == rule.name),
    )


def _answer(clauses: Sequence[MatchClause], path: str, *, default: bool) -> bool:
    return next((clause.fits for clause in clauses if clause.path == path), default)


def _clauses(rule: Rule, recorded: Sequence[ClosureAnswer]) -> Iterator[MatchClause]:
    seen = set()
    for each in recorded:
        if each.what.startswith(("match", "exclude")) and each.what not in seen:
            if is_expression(each.what):
                continue
            seen.add(each.what)
            yield MatchClause(each.what, bool(each.answer), dig(rule, each.what))


def _loaded(recorded: Sequence[ClosureAnswer]) -> Iterator[LoadedEntry]:
    for each in recorded:
        if each.what.startswith("context."):
            yield LoadedEntry(each.what.removeprefix("context."), each.answer, each.error)


def _compared(rule: Rule, recorded: Sequence[ClosureAnswer]) -> Iterator[ComparedCondition]:
    for each in recorded:
        if "conditions" not in each.what or is_expression(each.what):
            continue
        written = dig(rule, each.what)
        operator = written.get("operator", "") if isinstance(written, dict) else ""
        constant = written.get("value") if isinstance(written, dict) else None
        yield ComparedCondition(
            path=each.what,
            key=each.given[0] if each.given else None,
            operator=str(operator),
            value=each.given[1] if len(each.given) > 1 else constant,
            holds=None if each.error else bool(each.answer),
            error=each.error,
        )


def _checked(recorded: Iterable[ClosureAnswer]) -> Iterator[CheckedSigner]:
    for each in recorded:
        if each.what != SIGNER_WATCH:
            continue
        [wanted] = each.given
        proofs = each.answer if isinstance(each.answer, tuple) else (each.answer,)
        yield CheckedSigner(
            wanted.field.removeprefix("."),
            () if each.error else tuple(map(_describe_proof, proofs)),
            each.error,
        )


def _describe_proof(proof: VerifiedSignature | VerifiedStatement) -> str:
    signer = proof.signer
    who = signer.subject or f"a key with SHA-256 {signer.key}"
    when = f" at {signer.signed_at.isoformat()}" if signer.signed_at is not None else ""
    return f"{proof.origin} by {who}{when}"


def is_expression(path: str) -> bool:
    """Whether it is CEL that answered."""
    begins = ("variables.", "images.", _IMAGE_REFERENCE)
    return path.startswith(begins) or path.endswith(_ENDS_OF_EXPRESSIONS)


# Whether a policy is about an image, by what it says of images.
_IMAGE_REFERENCE = "matchImageReferences["


_ENDS_OF_EXPRESSIONS = ("].expression", ".messageExpression", ".valueExpression", ".expression")


def list_expressions(
    recorded: Iterable[ClosureAnswer], find_text: Callable[[str], Json]
) -> Iterator[EvaluatedExpression]:
    """What expressions and their variables answered, each once for the same answer."""
    seen: list[tuple[Json, ...]] = []
    for each in recorded:
        image = each.given[0] if each.what.startswith(_IMAGE_REFERENCE) else ""
        key = (each.what, image, each.answer, each.error)
        if not is_expression(each.what) or key in seen:
            continue
        seen.append(key)
        text = _word_reference(image, each.what, find_text) if image else find_text(each.what)
        yield EvaluatedExpression(
            each.what, text if isinstance(text, str) else "", each.answer, each.error
        )


def _word_reference(image: str, path: str, find_text: Callable[[str], Json]) -> str:
    glob = find_text(f"{path}.glob")
    return f"{image} like {glob}" if glob else f"{image}: {find_text(f'{path}.expression')}"


def _evaluated(rule: Rule, recorded: Iterable[ClosureAnswer]) -> Iterator[EvaluatedExpression]:
    cel = rule.validate.cel if rule.validate is not None else None
    variables = {each.name: each.expression for each in cel.variables} if cel is not None else {}
    for each in list_expressions(
        recorded, lambda path: variables.get(path.removeprefix("variables."))
    ):
        path = _find_cel(each.path)
        text = each.text or dig(rule, path)
        yield msgspec.structs.replace(each, path=path, text=text if isinstance(text, str) else "")


def _find_cel(path: str) -> str:
    """Where a classic rule has what the other kinds call so."""
    if path.startswith("variables."):
        return path
    if path.startswith("matchConditions"):
        return path.replace("matchConditions", "celPreconditions", 1)
    return f"validate.cel.{path.replace('validations', 'expressions', 1)}"


def dig(record: Json, path: str) -> Json:
    """What the author wrote at a path such as `match.any[0].resources.kinds`."""
    here: Json = record
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            index = int(part[1:-1])
            here = here[index] if isinstance(here, (list, tuple)) and index < len(here) else None
        elif isinstance(here, dict):
            here = here.get(part)
        else:
            here = getattr(here, _snake(part), None)
    return here


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


# --- as text


def render_explanation(explanation: Explanation, *, width: int = MAX_SHOWN) -> Iterator[str]:
    """A tree, line by line; values and expressions are cut at a width, or not at all for 0."""
    yield f"{explanation.policy} -> {explanation.resource}"
    for index, rule in enumerate(explanation.rules):
        last = index == len(explanation.rules) - 1
        title = rule.title or f"rule {rule.rule}"
        yield f"{'└──' if last else '├──'} {title}: {_verdict(rule)}"
        lines = list(_rule_lines(rule, width))
        for number, text in enumerate(lines):
            branch = "└──" if number == len(lines) - 1 else "├──"
            yield f"{'    ' if last else '│   '}{branch} {text}"


def _verdict(rule: RuleExplanation) -> str:
    if not rule.matched:
        return "does not concern this resource"
    if not rule.results:
        return "matched, and has nothing to say"
    return ", ".join(sorted({str(result.status) for result in rule.results}))


def _rule_lines(rule: RuleExplanation, width: int) -> Iterator[str]:
    for clause in rule.clauses:
        if not any(other.path.startswith(f"{clause.path}.") for other in rule.clauses):
            yield _clause_line(clause, width)
    for loaded in rule.context:
        told = (
            f"could not be loaded: {loaded.error}" if loaded.error else _shown(loaded.value, width)
        )
        yield f"context {loaded.name} = {told}"
    for compared in rule.conditions:
        yield _condition_line(compared, width)
    for evaluated in rule.expressions:
        yield _expression_line(evaluated, width)
    for signer in rule.signers:
        yield from _signer_lines(signer)
    for result in rule.results:
        yield f"{result.status}: {result.message}"
        if result.failure is not None:
            yield render_failure(result.failure)


def _clause_line(clause: MatchClause, width: int) -> str:
    mark = "✓" if clause.fits else "✗"
    return f"{mark} {clause.path} {_shown(clause.wanted, width)}"


def _condition_line(compared: ComparedCondition, width: int) -> str:
    if compared.error:
        return f"! {compared.path}: {compared.error}"
    mark = "holds" if compared.holds else "does not hold"
    return (
        f"{compared.path}: {_shown(compared.key, width)} {compared.operator} "
        f"{_shown(compared.value, width)}: {mark}"
    )


def _expression_line(evaluated: EvaluatedExpression, width: int) -> str:
    shown = _cut(" ".join(evaluated.text.split()), width)
    path = evaluated.path.removesuffix(".expression")
    told = f"{path}: {shown}" if shown else path
    if evaluated.error:
        return f"! {told}: {evaluated.error}"
    return f"{told} = {_shown(evaluated.value, width)}"


def _signer_lines(signer: CheckedSigner) -> Iterator[str]:
    if signer.refused:
        yield f"✗ {signer.path}: {signer.refused}"
    for proved in signer.proved:
        yield f"✓ {signer.path}: {proved}"


def _shown(value: Json, width: int) -> str:
    return _cut(dump_go_json(to_plain(value)), width)


def _cut(text: str, width: int) -> str:
    return text if not width or len(text) <= width else f"{text[:width]}…"


# --- as JSON


def explanation_to_json(explanation: Explanation) -> JsonObject:
    """The explanation as JSON."""
    return {
        "policy": explanation.policy,
        "resource": explanation.resource,
        "rules": [_rule_to_json(rule) for rule in explanation.rules],
    }


def _rule_to_json(rule: RuleExplanation) -> JsonObject:
    return {
        "rule": rule.rule,
        "matched": rule.matched,
        "clauses": [
            {"path": c.path, "fits": c.fits, "wanted": to_plain(c.wanted)} for c in rule.clauses
        ],
        "context": [
            {"name": c.name, "value": to_plain(c.value), "error": c.error} for c in rule.context
        ],
        "conditions": [
            {
                "path": c.path,
                "key": to_plain(c.key),
                "operator": c.operator,
                "value": to_plain(c.value),
                "holds": c.holds,
                "error": c.error,
            }
            for c in rule.conditions
        ],
        "expressions": [
            {"path": e.path, "text": e.text, "value": to_plain(e.value), "error": e.error}
            for e in rule.expressions
        ],
        "signers": [
            {"path": s.path, "proved": list(s.proved), "refused": s.refused} for s in rule.signers
        ],
        "results": [_result_to_json(result) for result in rule.results],
    }


def _result_to_json(result: Result) -> JsonObject:
    told: JsonObject = {"status": str(result.status), "message": result.message}
    if result.failure is not None:
        told["failure"] = {
            "path": result.failure.path,
            "expected": to_plain(result.failure.expected),
            "found": to_plain(result.failure.found),
            "reason": result.failure.reason,
        }
    return told


def to_plain(value: Json) -> Json:
    """Records of a policy as plain JSON; what has no such form as its text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    fields = getattr(value, "__struct_fields__", None)
    if fields is not None:
        named = zip(fields, value.__struct_encode_fields__, strict=True)
        made = {name: to_plain(getattr(value, field)) for field, name in named}
        return {name: item for name, item in made.items() if item not in (None, "", [], {})}
    return str(value)
