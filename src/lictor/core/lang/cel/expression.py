"""Expressions of policies: text in, callable out, with the variables that a policy declares."""

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.advice import advise
from lictor.core.lang.cel.faults import CelCompileError, CelError, OutsideError
from lictor.core.lang.cel.host import NO_HOST_FUNCTIONS, HostFunctions, current_host
from lictor.core.lang.cel.library.plain import admit, emit
from lictor.core.lang.cel.library.structs import Structs
from lictor.core.lang.cel.program import CelProgram, Environment
from lictor.core.lang.cel.state import CALL_LIMIT, UNSET, State
from lictor.core.lang.cel.syntax import CelNode
from lictor.core.lang.cel.types import CelType, struct_type
from lictor.core.lang.cel.values import Opaque, Value
from lictor.core.raw import Json

_VARIABLES = "kubernetes.variables"
# Names of host functions, and of functions whose value changes.
_OUTSIDE = re.compile(
    r"(?<![.\w])(?:resource|http|globalContext|image|authorizer|generator|time|random|x509|jwt|jwks)"
    r"\b|verify|ImageData|Payload"
)
_USED = re.compile(r"\bvariables\s*\.\s*(?:\?\s*)?(\w+)")


class Activation:
    """Values by variable name, for the expressions of one request.

    `deadline` is when they must have ended, by `time.monotonic`; `variables`, `computed` and
    `shared` have the variables of policies and the values computed so far.
    """

    __slots__ = ("computed", "shared", "state", "variables")

    def __init__(self, values: Mapping[str, Value], deadline: float | None = None) -> None:
        self.state = State(values, CALL_LIMIT, deadline, time.monotonic)
        self.variables: dict[Variables, _Values] = {}
        self.shared: dict[int, Value] = {}
        self.computed: dict[tuple[int, int], dict[int, Value]] = {}

    def keep_variables(self, before: "Activation") -> None:
        """Take over the variables that were computed, although other values have changed."""
        self.computed, self.shared = before.computed, before.shared


def make_activation(values: Mapping[str, Json], deadline: float | None = None) -> Activation:
    """`object`, `request`, `params` and so on, as Kubernetes reads JSON."""
    admitted = {
        name: value if isinstance(value, Opaque) else admit(value) for name, value in values.items()
    }
    return Activation(admitted, deadline)


class CompiledVariable(msgspec.Struct, frozen=True, eq=False):
    """A named part of a policy's expressions; `around` are the variables that it may use."""

    name: str
    text: str
    program: CelProgram
    around: "Variables | None"
    # Whether errors name the variable.
    is_named: bool = False
    # Whether nothing but the request determines the value: many policies have the same variables.
    is_shared: bool = False

    @property
    def kind(self) -> CelType:
        return self.program.result


class Variables(msgspec.Struct, frozen=True, eq=False):
    """The variables declared so far, by name. A later one of the same name hides the earlier."""

    declared: Mapping[str, CompiledVariable] = {}

    @property
    def kinds(self) -> Mapping[str, CelType]:
        """The types of the variables."""
        return {name: variable.kind for name, variable in self.declared.items()}


NO_VARIABLES = Variables()


class _Values(Opaque):
    """The value of `variables` for one policy and one request: each is computed when needed."""

    variables: Variables
    host: HostFunctions
    state: State
    # Values by the identity of the variable's declaration, and of the program for those that are
    # the same for all policies.
    computed: dict[int, Value]
    shared: dict[int, Value]
    type_name: ClassVar[str] = _VARIABLES

    def __getitem__(self, name: str) -> Value:
        variable = self.variables.declared[name]
        known = self.shared if variable.is_shared else self.computed
        key = id(variable.program) if variable.is_shared else id(variable)
        if key not in known:
            known[key] = self._compute(variable)
        return known[key]

    def get_field(self, key: Value, missing: Any) -> Value:
        return self[key] if key in self.variables.declared else missing

    def _compute(self, variable: CompiledVariable) -> Value:
        """A variable has its own budget; what is around it goes on with what it had left."""
        state, around = self.state, UNSET
        if variable.around is not None:
            around = _Values(variable.around, self.host, state, self.computed, self.shared)
        cost, check = state.cost, state.next_check
        try:
            return variable.program.run(state, around)
        except OutsideError:
            raise
        except CelError as error:
            if not variable.is_named:
                raise
            message = f'composited variable "{variable.name}" fails to evaluate: {error}'
            raise CelError(message) from error
        finally:
            state.cost, state.next_check = cost, check


class _VariableTypes(Structs):
    """The types of an environment, and the type of `variables`."""

    def __init__(self, base: Structs, fields: Mapping[str, CelType]) -> None:
        self._base = base
        self._fields = fields

    def find(self, name: str) -> CelType | None:
        return self._base.find(name)

    def find_field(self, name: str, field: str) -> CelType | None:
        return self._fields.get(field) if name == _VARIABLES else self._base.find_field(name, field)

    def make(self, name: str, fields: dict[str, Value]) -> Value:
        return self._base.make(name, fields)


class Expression:
    """A compiled expression: call it with an Activation (or a mapping); it answers plain JSON."""

    __slots__ = ("_program", "_variables", "result_type", "text")

    def __init__(self, text: str, program: CelProgram, variables: Variables) -> None:
        self.text = text
        self.result_type = name_type(program.result)
        self._program = program
        self._variables = variables if "variables" in program.variables else None

    def __call__(
        self, activation: Activation | Mapping[str, Json], host: HostFunctions = NO_HOST_FUNCTIONS
    ) -> Json:
        """Evaluate; raises EvaluationError, or what a callable of `host` raised."""
        if not isinstance(activation, Activation):
            activation = make_activation(activation)
        known = UNSET
        if self._variables is not None:
            known = _find_values(activation, self._variables, host)
        token = current_host.set(host)
        try:
            value = self._program.run(activation.state, known)
            return value if value is True or value is False else emit(value)
        except OutsideError as error:
            raise error.cause from None
        finally:
            current_host.reset(token)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _find_values(activation: Activation, variables: Variables, host: HostFunctions) -> _Values:
    """The variables of a policy, which are computed only once for a request."""
    found = activation.variables.get(variables)
    if found is None or found.host is not host:
        computed = activation.computed.setdefault((id(variables), id(host)), {})
        found = _Values(variables, host, activation.state, computed, activation.shared)
        activation.variables[variables] = found
    return found


def name_type(of: CelType) -> str:
    """A type as `type()` names it."""
    return "null_type" if of.kind == "null" else str(of)


def compile_expression(
    text: str, environment: Environment, variables: Variables = NO_VARIABLES
) -> Expression:
    """Turn text into a callable; raises SyntaxFaultError for what does not parse or fit its types.

    The same text in the same environment with variables of the same types is compiled only once.
    """
    return Expression(text, _compile(text, environment, _list_kinds(text, variables)), variables)


def declare_variable(
    variables: Variables, name: str, text: str, environment: Environment
) -> Variables:
    """The variables and one more, which may use those before it as `variables.x`."""
    program = _compile(text, environment, _list_kinds(text, variables))
    around = variables if "variables" in program.variables else None
    is_shared = around is None and _OUTSIDE.search(text) is None
    is_named = environment.names_variables
    made = CompiledVariable(name, text, program, around, is_named, is_shared)
    return Variables({**variables.declared, name: made})


def check_tree(text: str, environment: Environment, variables: Variables = NO_VARIABLES) -> CelNode:
    """The tree with types, for those who look into it; SyntaxFaultError as above."""
    return _check_tree(text, environment, _list_kinds(text, variables))


def render_issues(text: str, environment: Environment, variables: Variables = NO_VARIABLES) -> str:
    """Why an expression does not compile, as cel-go prints it; empty if it does."""
    known = _extend(environment, _list_kinds(text, variables))
    try:
        issues = known.check(known.parse(text))
    except CelCompileError as error:
        return str(error)
    return str(CelCompileError(issues, text)) if issues else ""


_Kinds = tuple[tuple[str, CelType], ...] | None


def _list_kinds(text: str, variables: Variables) -> _Kinds:
    """The variables that an expression uses; None where it does not even mention them."""
    if "variables" not in text:
        return None
    used = _USED.findall(text)
    return tuple((name, each.kind) for name, each in variables.declared.items() if name in used)


# Thousands of policies have the same few expressions.
@lru_cache(maxsize=8192)
def _compile(text: str, environment: Environment, kinds: _Kinds) -> CelProgram:
    _refuse_empty(text)
    try:
        return _extend(environment, kinds).compile(text)
    except CelCompileError as error:
        raise advise(error, environment) from None


@lru_cache(maxsize=512)
def _check_tree(text: str, environment: Environment, kinds: _Kinds) -> CelNode:
    _refuse_empty(text)
    known = _extend(environment, kinds)
    try:
        root = known.parse(text)
        issues = known.check(root)
        if issues:
            raise CelCompileError(issues, text)
    except CelCompileError as error:
        raise advise(error, environment) from None
    return root


def _refuse_empty(text: str) -> None:
    if not text.strip():
        raise SyntaxFaultError("the expression is empty", text=text)


@lru_cache(maxsize=4096)
def _extend(environment: Environment, kinds: _Kinds) -> Environment:
    if kinds is None:
        return environment
    extended = environment.extend({"variables": struct_type(_VARIABLES)})
    return replace(extended, structs=_VariableTypes(environment.structs, dict(kinds)))
