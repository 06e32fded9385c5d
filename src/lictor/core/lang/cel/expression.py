"""CEL text in, callable out."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

import msgspec

from lictor.core.errors import EvaluationError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.environment import (
    Activation,
    Environment,
    Slot,
    checker_for,
    make_activation,
    runtime,
    slot_name,
    uncommon_slots,
)
from lictor.core.lang.cel.faults import evaluation_fault, syntax_fault
from lictor.core.lang.cel.growth import (
    FEW_COPIES,
    MADE_ELEMENTS,
    MAX_LARGE_DEGREE,
    NO_GROWTH,
    Growth,
    check_work,
    measure_growth,
)
from lictor.core.lang.cel.host import NO_HOST_FUNCTIONS, HostFunctions, current_host
from lictor.core.lang.cel.library import function_names
from lictor.core.lang.cel.library.kubernetes_values import range_elements
from lictor.core.lang.cel.native import Checker, interruption, remembered_error
from lictor.core.lang.cel.restrictions import (
    NO_OPTIONALS,
    Optionals,
    check_restrictions,
    refuse_optionals,
    unwrap_optional,
)
from lictor.core.lang.cel.rewriting import Rewritten, read_fields, refuse_names, rewrite_expression
from lictor.core.lang.cel.transforms import cut_loops, forgive, prepare_code
from lictor.core.lang.cel.types import CelType, parse_type
from lictor.core.lang.cel.values import emit
from lictor.core.lang.cel.wire import bind_name, extract_expression, pack_expression
from lictor.core.raw import Json


class CompiledVariable(msgspec.Struct, frozen=True):
    """A named part of a policy's expressions: its slot, its code, the variables it uses itself."""

    name: str
    text: str
    slot: Slot
    code: bytes
    uses: tuple["CompiledVariable", ...]
    growth: Growth = Growth()
    optionals: Optionals = NO_OPTIONALS

    def closure(self) -> tuple["CompiledVariable", ...]:
        """The variables it needs, each after those that it uses, and itself."""
        return (*_closure(self.uses), self)


class Variables(msgspec.Struct, frozen=True):
    """The variables declared so far, by name. A later one of the same name hides the earlier.

    `counts` tells how many of each type there were, hidden ones too: others may use those.
    `names` are those that the checker knows the variables by.
    """

    declared: Mapping[str, CompiledVariable] = {}
    counts: Mapping[CelType, int] = {}
    names: Mapping[str, str] = {}

    def used_by(self, rewritten: Rewritten) -> tuple[CompiledVariable, ...]:
        """The variables that an expression uses itself."""
        texts = {edit.text for edit in rewritten.edits}
        if not texts:
            return ()
        return tuple(self.declared[name] for name, text in self.names.items() if text in texts)

    @property
    def kinds(self) -> Mapping[str, CelType]:
        """The types of the variables."""
        return {name: variable.slot[0] for name, variable in self.declared.items()}


NO_VARIABLES = Variables()

Evaluate = Callable[[Json], Json]


class _NoFieldsError(EvaluationError):
    """A field was asked of what has none."""


_NO_FIELDS = re.compile(
    r"SELECT to non-message type|overloads found : (_\[\?_\]|_\?\._|orValue$|or$)"
)


_MOST_EDITS = 1000
# Functions whose answers may be long, whatever the request is.
_MAKES_LISTS = re.compile(
    rb"resource\.|globalContext\.|http\.|[Gg]et|[Pp]ost|unmarshal|yaml\.|[Rr]ange|split|(?:find|extract)All|flatten"
)


class Expression:
    """A compiled expression: call it with an Activation (or a mapping); it answers plain JSON."""

    __slots__ = (
        "_code",
        "_evaluate",
        "_evaluate_forgiving",
        "_evaluate_large",
        "_growth",
        "_is_heavy",
        "_is_steep",
        "_makes_lists",
        "_may_return_optional",
        "_parts",
        "result_type",
        "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        result_type: str,
        code: bytes,
        parts: tuple[CompiledVariable, ...] = (),
        growth: Growth = NO_GROWTH,
        optionals: Optionals = NO_OPTIONALS,
    ) -> None:
        self.text = text
        self.result_type = result_type
        self._code = prepare_code(code)
        self._evaluate = self._load(self._code)
        # Its loops over maps are cut by a function in Python, which must not be given optionals.
        self._evaluate_large = self._evaluate if optionals.is_nested else None
        self._may_return_optional = optionals.layers > 0
        self._parts = parts
        self._is_steep = growth.degree > MAX_LARGE_DEGREE
        self._growth = growth
        self._is_heavy = growth.work > 1 or growth.factor > FEW_COPIES
        self._evaluate_forgiving: Evaluate | None = None
        self._makes_lists = _MAKES_LISTS.search(code) is not None

    def __call__(
        self, activation: Activation | Mapping[str, Json], host: HostFunctions = NO_HOST_FUNCTIONS
    ) -> Json:
        """Evaluate; raises EvaluationError, or what a callable of `host` raised."""
        if not isinstance(activation, Activation):
            activation = make_activation(activation)
        token = current_host.set(host)
        try:
            return self._answer(activation)
        except EvaluationError as error:
            return self._try_again(activation, error)
        finally:
            current_host.reset(token)

    def _load(self, code: bytes) -> Evaluate:
        try:
            program = runtime().deserialize(pack_expression(code))
        except (RuntimeError, ValueError):
            # The engine reads at most a hundred levels; each variable in use takes two.
            message = "the expression uses too many variables at once"
            raise SyntaxFaultError(message, text=self.text) from None
        evaluate: Evaluate = program.eval
        return evaluate

    def _load_large(self) -> Evaluate:
        """The program for long lists. It has more levels: where those are too many, the other."""
        try:
            self._evaluate_large = self._load(cut_loops(self._code))
        except SyntaxFaultError:
            self._evaluate_large = self._evaluate
        return self._evaluate_large

    def _answer(self, activation: Activation) -> Json:
        evaluate = self._evaluate
        if activation.is_large and self._is_steep:
            raise TooLargeError("loops within loops over long lists would take too long")
        if self._is_heavy:
            self._refuse_long_work(activation)
        if activation.is_large or self._makes_lists:
            evaluate = self._evaluate_large or self._load_large()
            range_elements.set(0)
        return self._settle(evaluate, activation)

    def _refuse_long_work(self, activation: Activation) -> None:
        """Whoever must answer soon does not begin what nobody could interrupt."""
        count = max(activation.count, MADE_ELEMENTS if self._makes_lists else 0)
        check_work(self._growth, count, activation.size)

    def _try_again(self, activation: Activation, error: EvaluationError) -> Json:
        if isinstance(error, _NoFieldsError):
            with suppress(EvaluationError, SyntaxFaultError):
                if self._evaluate_forgiving is None:
                    self._evaluate_forgiving = self._load(forgive(self._code))
                return self._settle(self._evaluate_forgiving, activation)
        for part in self._parts:
            self._blame(part, activation, error)
        raise error

    def _blame(
        self, part: CompiledVariable, activation: Activation, error: EvaluationError
    ) -> None:
        """Raise the error in the name of the variable that it comes from, if it does."""
        try:
            _name_part(part)(activation, current_host.get())
        except EvaluationError as inner:
            if str(error) in str(inner):
                message = f'composited variable "{part.name}" fails to evaluate: {inner}'
                raise EvaluationError(message) from None

    def _settle(self, evaluate: Evaluate, activation: Activation) -> Json:
        try:
            result = evaluate(activation.native)
            if self._may_return_optional:
                refuse_optionals(result)
            value = result.plain_value()
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            raise _explain(str(error)) from None
        if value is True or value is False:
            return value
        # The engine gives an error as a value whose content is a text.
        if isinstance(value, str) and result.type().name() == "ERROR":
            raise _explain(value)
        return emit(value)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def compile_expression(
    text: str, environment: Environment, variables: Variables = NO_VARIABLES
) -> Expression:
    """Turn text into a callable; raises SyntaxFaultError for what does not parse or fit its types.

    The same text in the same environment with the same variables is compiled only once.
    """
    code, kind, used, optionals = _check(text, environment, variables)
    growth = _measure(code, used, text)
    code, optionals = unwrap_optional(code, kind, optionals)
    parts = used if environment.names_variables else ()
    grown = (growth, *(each.growth for each in _closure(used)))
    most = Growth(
        max((each.factor for each in grown if each.degree), default=1),
        max(each.degree for each in grown),
        max(each.work for each in grown),
    )
    return _program(text, str(kind), _bind(code, used), parts, most, optionals)


def declare_variable(
    variables: Variables, name: str, text: str, environment: Environment
) -> Variables:
    """The variables and one more, which may use those before it as `variables.x`."""
    code, kind, used, optionals = _check(text, environment, variables)
    count = variables.counts.get(kind, 0)
    growth = _measure(code, used, text)
    variable = CompiledVariable(name, text, (kind, count), code, used, growth, optionals)
    return Variables(
        {**variables.declared, name: variable},
        {**variables.counts, kind: count + 1},
        {**variables.names, name: slot_name(variable.slot)},
    )


def serialize_expression(
    text: str, environment: Environment, variables: Variables = NO_VARIABLES
) -> tuple[Rewritten, bytes]:
    """The checked expression with types and positions, for those who look into it."""
    rewritten, used = _rewrite(text, environment, variables)
    slots = uncommon_slots(variable.slot for variable in used)
    found = _serialized(environment, slots, rewritten)
    return found.rewritten, found.code


def _check(
    text: str, environment: Environment, variables: Variables
) -> tuple[bytes, CelType, tuple[CompiledVariable, ...], Optionals]:
    rewritten, used = _rewrite(text, environment, variables)
    slots = uncommon_slots(variable.slot for variable in used)
    known = tuple((slot_name(each.slot), each.optionals) for each in used if each.optionals.layers)
    code, kind, optionals = _checked(environment, slots, rewritten, known)
    return code, kind, used, optionals


def _rewrite(
    text: str, environment: Environment, variables: Variables
) -> tuple[Rewritten, tuple[CompiledVariable, ...]]:
    refuse_names(text, environment.forbidden)
    rewritten = rewrite_expression(text, variables.names, environment.rewrites)
    return rewritten, variables.used_by(rewritten)


@lru_cache(maxsize=4096)
def _closure(used: tuple[CompiledVariable, ...]) -> tuple[CompiledVariable, ...]:
    """The variables used, each after those that it uses."""
    ordered: dict[Slot, CompiledVariable] = {}
    for variable in used:
        for needed in variable.closure():
            ordered.setdefault(needed.slot, needed)
    return tuple(ordered.values())


def _bind(code: bytes, used: tuple[CompiledVariable, ...]) -> bytes:
    for variable in reversed(_closure(used)):
        code = bind_name(slot_name(variable.slot), variable.code, code)
    return code


@lru_cache(maxsize=8192)
def _measure(code: bytes, used: tuple[CompiledVariable, ...], text: str) -> Growth:
    return measure_growth(code, {slot_name(each.slot): each.growth for each in used}, text)


def _name_part(part: CompiledVariable) -> Expression:
    """A variable by itself."""
    code, optionals = unwrap_optional(part.code, part.slot[0], part.optionals)
    bound = _bind(code, part.uses)
    return _program(part.text, str(part.slot[0]), bound, part.uses, optionals=optionals)


@lru_cache(maxsize=8192)
def _checked(
    environment: Environment,
    slots: frozenset[Slot],
    rewritten: Rewritten,
    known: tuple[tuple[str, Optionals], ...],
) -> tuple[bytes, CelType, Optionals]:
    checked = _serialized(environment, slots, rewritten)
    optionals = check_restrictions(checked.code, checked.rewritten, dict(known), function_names)
    return extract_expression(checked.code), checked.kind, optionals


class _Serialized(msgspec.Struct, frozen=True):
    """A checked expression with types and positions, its type, and the text that was checked."""

    code: bytes
    kind: CelType
    rewritten: Rewritten


# Those that were looked at lately: an expression is compiled, then looked into for each kind that
# its policy is about, at admission and for the policy's status.
@lru_cache(maxsize=512)
def _serialized(
    environment: Environment, slots: frozenset[Slot], rewritten: Rewritten
) -> _Serialized:
    expression, checked = _compile(checker_for(environment, slots), rewritten, environment)
    try:
        kind = parse_type(expression.return_type().name())
    except RuntimeError as error:
        # Of a map whose keys cannot be keys.
        raise syntax_fault(str(error), checked, ()) from None
    return _Serialized(expression.serialize(), kind, checked)


def _compile(
    checker: Checker, rewritten: Rewritten, environment: Environment
) -> tuple[Json, Rewritten]:
    """The checked expression, and the text that was checked."""
    if not rewritten.text.strip():
        raise SyntaxFaultError("the expression is empty", text=rewritten.original)
    while True:
        try:
            return checker.compile(rewritten.text), rewritten
        except (RuntimeError, ValueError, TypeError) as error:
            changed = read_fields(rewritten, str(error))
            # The checker tells all places at once, but there may be some behind others.
            if changed is None or len(changed.edits) > _MOST_EDITS:
                raise syntax_fault(str(error), rewritten, environment.names()) from None
            rewritten = changed


# What was compiled already is not loaded again.
_program = lru_cache(maxsize=8192)(Expression)


def _explain(status: str) -> Exception:
    over = interruption.get().error
    if over is not None:
        return over
    error = remembered_error.get()
    remembered_error.set(None)
    if error is not None and str(error) in status:
        return error
    fault = evaluation_fault(status)
    return _NoFieldsError(str(fault)) if _NO_FIELDS.search(status) else fault
