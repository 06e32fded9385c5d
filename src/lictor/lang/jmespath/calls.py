"""A call of a function: arguments are computed, their types checked, and faults told by name."""

from functools import partial

from lictor.errors import CompileError, FunctionError, LictorError, TooLargeError
from lictor.lang.jmespath.functions.spec import (
    FunctionSpec,
    Handler,
    Surroundings,
    Type,
    accepts,
)
from lictor.lang.jmespath.paths import Run
from lictor.lang.jmespath.values import name_type
from lictor.raw import Json


def compile_call(spec: FunctionSpec, arguments: tuple[Run, ...], world: Surroundings) -> Run:
    """Bind a function to what computes its arguments."""
    handler = spec.handler if spec.pure else partial(spec.handler, world)
    # Kyverno checks no types of functions that take any number of arguments; they do it themselves.
    checks = (
        ()
        if spec.variadic
        else tuple(
            (index, accepts(types))
            for index, types in enumerate(spec.arguments)
            if Type.ANY not in types
        )
    )
    if len(arguments) == 1 and checks:
        return _compile_single(spec, handler, arguments[0])

    def call(value: Json) -> Json:
        given = [argument(value) for argument in arguments]
        for index, accepted in checks:
            if not accepted(given[index]):
                raise _mismatch(spec, index, given[index])
        try:
            return handler(*given)
        except _FAULTS as error:
            raise _explain(spec, error) from error

    return call


def _compile_single(spec: FunctionSpec, handler: Handler, argument: Run) -> Run:
    accepted = accepts(spec.arguments[0])

    def call(value: Json) -> Json:
        given = argument(value)
        if not accepted(given):
            raise _mismatch(spec, 0, given)
        try:
            return handler(given)
        except _FAULTS as error:
            raise _explain(spec, error) from error

    return call


# Handlers speak of bad values in Python's own words, and of bad expressions in the compiler's.
_FAULTS = (ValueError, OverflowError, MemoryError, CompileError, TooLargeError)


def _mismatch(spec: FunctionSpec, index: int, given: Json) -> FunctionError:
    expected = " or ".join(spec.arguments[index])
    return FunctionError(
        f"JMESPath function '{spec.name}': argument #{index + 1} must be of type {expected}, "
        f"not {name_type(given)}"
    )


def _explain(spec: FunctionSpec, error: Exception) -> LictorError:
    kind = TooLargeError if isinstance(error, (TooLargeError, MemoryError)) else FunctionError
    return kind(f"JMESPath function '{spec.name}': {error}")
