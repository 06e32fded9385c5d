"""Which exceptions free a rule from judging a request?"""

from collections.abc import Callable, Iterable, Sequence

from lictor.compile.selection import remember
from lictor.errors import EvaluationError
from lictor.evaluate.conditions import Conditions, compile_conditions
from lictor.evaluate.exemption import Exempt, Exempted
from lictor.evaluate.expressions import Expressions
from lictor.lang.wildcard import compile_wildcard
from lictor.match.classic import EXCEPTION, compile_filter
from lictor.model.exception import PolicyException
from lictor.model.program import Case
from lictor.model.result import ExceptionRef


def compile_exceptions(
    exceptions: Iterable[PolicyException], policy: str, rule: str, expressions: Expressions
) -> Exempt | None:
    """The exceptions that name this rule, joined; None where there are none."""
    chosen = [e for e in exceptions if _names(e, policy, rule)]
    if not chosen:
        return None
    tests = [_compile_one(exception, expressions) for exception in chosen]
    return lambda case: tuple(made for test in tests if (made := test(case)) is not None)


def _names(exception: PolicyException, policy: str, rule: str) -> bool:
    return any(
        entry.policy_name == policy and _fits_any(entry.rule_names, rule)
        for entry in exception.spec.exceptions
    )


def _fits_any(patterns: Sequence[str], rule: str) -> bool:
    return any(compile_wildcard(pattern)(rule) for pattern in patterns)


def _compile_one(
    exception: PolicyException, expressions: Expressions
) -> Callable[[Case], Exempted | None]:
    select = remember(compile_filter(exception.spec.match, EXCEPTION))
    asks: Conditions | None = compile_conditions(
        exception.spec.conditions, expressions, where="exception.conditions"
    )
    metadata = exception.metadata
    made = Exempted(ExceptionRef(metadata.name, metadata.namespace), exception.spec.pod_security)

    def exempt(case: Case) -> Exempted | None:
        request = case.request
        matches = select(request.kind, request.subresource, request.operation)
        if matches is None or not matches(request):
            return None
        if asks is not None:
            try:
                if not asks(case.scope)[0]:
                    return None
            except EvaluationError:
                return None  # an exception that cannot be decided frees nobody
        return made

    return exempt
