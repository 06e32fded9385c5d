"""Kubewarden's policies and groups become programs: a rule that calls the module.

The module is fetched and opened for the first request, and kept.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import (
    GroupEntry,
    MemberEntry,
    PolicyMode,
    PolicyResponse,
    ServerEntry,
)
from lictor.addons.kubewarden.family.policy import (
    OpenEntry,
    OpenGroup,
    fail_policy,
    finish_response,
    open_group,
    open_policy,
)
from lictor.addons.kubewarden.family.records import (
    PolicyServerDocument,
    WasmRecord,
    describe_constraints,
    describe_entry,
    find_namespace,
    name_uniquely,
)
from lictor.addons.kubewarden.family.reporting import ResultMaker, list_properties
from lictor.addons.kubewarden.family.validation import refuse_faults
from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, make_rule
from lictor.core.errors import LictorError, NotYetError
from lictor.core.evaluate.admission_request import describe_request
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.registry import refer
from lictor.core.lang.wasm_records import GuestLimits, HostCalls
from lictor.core.match.combine import requested_within
from lictor.core.match.constraints import compile_constraints, spare_guards
from lictor.core.model.program import (
    Bounds,
    Case,
    Check,
    CompiledRule,
    Needs,
    Phase,
    Program,
    Select,
)
from lictor.core.model.request import GroupVersionKind
from lictor.core.model.result import Action, Result
from lictor.core.raw import Json, JsonObject

# Does a case meet the conditions of a policy?
MeetsConditions: TypeAlias = Callable[[Case], bool]
_VIEW = "kubewarden"


def compile_wasm_policy(record: WasmRecord, context: CompileContext) -> Program:
    """Turn a policy into a program; one that is wrong answers with the reason."""
    return _Compiler(record, context).build(lambda: _build_evaluator(record, context))


def fail_wasm_policy(record: WasmRecord, error: LictorError, context: CompileContext) -> Program:
    """A program whose only answer is the error."""

    def fail() -> "_Evaluator":
        raise error

    return _Compiler(record, context).build(fail)


class _Compiler:
    def __init__(self, record: WasmRecord, context: CompileContext) -> None:
        self._record = record
        self._context = context
        self._ref = refer(record)

    def build(self, build_evaluator: Callable[[], "_Evaluator"]) -> Program:
        kept: list[_Evaluator] = []

        def find_evaluator() -> _Evaluator:
            if not kept:
                kept.append(build_evaluator())
            return kept[0]

        if getattr(self._record.spec, "mutating", False):
            rules: tuple[CompiledRule, ...] = (
                self._rule(Phase.MUTATE, lambda case: find_evaluator().change(case)),
                # A scan changes nothing and evaluates no mutating rule.
                self._rule(Phase.VALIDATE, lambda case: find_evaluator().audit(case)),
            )
        else:
            rules = (self._rule(Phase.VALIDATE, lambda case: find_evaluator().evaluate(case)),)
        return Program(
            policy=self._ref,
            rules=rules,
            background=self._record.spec.background_audit,
            prepare=lambda: find_evaluator().opener.open().settings_error,
        )

    def _rule(self, phase: Phase, check: Check) -> CompiledRule:
        made = make_rule(
            "",
            phase,
            _choose_action(self._record),
            select=self._select,
            check=lambda: check,
        )
        # Guests may make host calls, and may take long in any case.
        bounds = Bounds(asked_in=find_namespace(self._record))
        return replace(bind_rule(made, bounds), needs=Needs.LOOKUPS)

    def _select(self) -> Select:
        refuse_faults(self._record)
        constraints = compile_constraints(
            describe_constraints(self._record),
            find_names(self._context),
            where="spec",
            watch=self._context.watch_rule(""),
        )
        namespace = find_namespace(self._record)
        return spare_guards(requested_within(namespace, constraints) if namespace else constraints)


def find_names(context: CompileContext) -> ResourceNames:
    """The names of resources."""
    return context.resource_names or builtin_names()


def _choose_action(record: WasmRecord) -> Action:
    return Action.AUDIT if record.spec.mode == "monitor" else Action.ENFORCE


class _Evaluator(msgspec.Struct, frozen=True):
    """Evaluates one policy."""

    name: str
    entry: ServerEntry
    opener: "_Opener"
    maker: ResultMaker
    meets_conditions: MeetsConditions | None
    describe: Callable[[Case], JsonObject]

    def evaluate(self, case: Case) -> tuple[Result, ...]:
        """An answer of a policy that changes nothing."""
        if not self._concerns(case):
            return ()
        is_background = case.request.background
        response = self._ask(case, is_finished=not is_background)
        return (self._refuse_broken(self.maker.tell(response, is_background=is_background)),)

    def change(self, case: Case) -> tuple[Result, ...]:
        """An answer of a policy that may change the object."""
        if case.request.background or not self._concerns(case):
            return ()
        response = self._ask(case, is_finished=True)
        return (self._refuse_broken(self.maker.build_change_result(response, case.request.object)),)

    def audit(self, case: Case) -> tuple[Result, ...]:
        """The result of a mutating policy for an existing object."""
        return self.evaluate(case) if case.request.background else ()

    def _concerns(self, case: Case) -> bool:
        return self.meets_conditions is None or self.meets_conditions(case)

    def _ask(self, case: Case, *, is_finished: bool) -> PolicyResponse:
        response = self.opener.open().evaluate(self.describe(case))
        if not is_finished or self._is_broken():
            return response
        return finish_response(response, self.entry, self.name)

    def _is_broken(self) -> bool:
        """Can it not be evaluated at all? In a group, other members may decide."""
        opened = self.opener.open()
        return not isinstance(opened, OpenGroup) and bool(opened.settings_error)

    def _refuse_broken(self, result: Result) -> Result:
        """A policy that cannot be evaluated denies, as in Kubewarden also in mode monitor."""
        return replace(result, action=Action.ENFORCE) if self._is_broken() else result


class _Opener:
    """Opens a policy when it is first needed; a module that is missing is requested again."""

    def __init__(self, open_entry: Callable[[], OpenEntry]) -> None:
        self._open = open_entry
        self._opened: OpenEntry | None = None

    def open(self) -> OpenEntry:
        if self._opened is None:
            self._opened = self._open()
        return self._opened


def _build_evaluator(record: WasmRecord, context: CompileContext) -> _Evaluator:
    entry = describe_entry(record, _list_capabilities(record, context))
    name, namespace = name_uniquely(record), find_namespace(record)

    def open_entry() -> OpenEntry:
        return _open(name, entry, context, namespace)

    return _Evaluator(
        name,
        # The action decides what only warns: here every result is a denial.
        replace(entry, policy_mode=PolicyMode.PROTECT),
        _Opener(open_entry),
        ResultMaker(refer(record), _choose_action(record), list_properties(record)),
        _compile_conditions(record, context),
        _make_describer(context),
    )


def _list_capabilities(record: WasmRecord, context: CompileContext) -> tuple[str, ...]:
    """The host calls that the server of a policy allows those of namespaces; none without one."""
    for server in context.select(PolicyServerDocument):
        if server.metadata.name == record.spec.policy_server:
            return server.spec.namespaced_policies_capabilities
    return ()


def _open(name: str, entry: ServerEntry, context: CompileContext, namespace: str) -> OpenEntry:
    def make_host(member: MemberEntry) -> HostCalls:
        # Loads what speaks of images and certificates, which few commands need.
        from lictor.addons.kubewarden.family.host_calls import PolicyHost

        return PolicyHost(context.lookups, member, policy=name, namespace=namespace)

    modules, limits = context.modules, GuestLimits()
    if isinstance(entry, GroupEntry):
        return open_group(name, entry, modules, make_host, limits, namespace=namespace)
    try:
        return open_policy(name, entry, modules, make_host(entry), limits, namespace=namespace)
    except NotYetError:
        raise
    except LictorError as error:
        return fail_policy(name, entry, error)


def _make_describer(context: CompileContext) -> Callable[[Case], JsonObject]:
    names = find_names(context)

    def name_resource(kind: GroupVersionKind) -> str:
        return names.of_kind(kind.group, kind.version, kind.kind).resource

    def describe(case: Case) -> JsonObject:
        # All policies of a case see the same request, and none changes it.
        found: Json = case.views.get(_VIEW)
        if found is None:
            written = describe_request(case.request, name_resource)
            found = {name: value for name, value in written.items() if value is not None}
            found["uid"] = found.get("uid") or _read_uid(case)
            case.views[_VIEW] = found
        described: JsonObject = found
        return described

    return describe


def _read_uid(case: Case) -> str:
    metadata = case.request.resource.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _compile_conditions(record: WasmRecord, context: CompileContext) -> MeetsConditions | None:
    spec = record.spec
    if not spec.match_conditions:
        return None
    # The engine of that language is heavy, and few policies have conditions.
    from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
    from lictor.core.lang.cel.kubernetes import kubernetes_environment

    around = context.cel
    language = ExpressionCompiler(
        kubernetes_environment(has_params=False),
        around.host_functions(find_namespace(record)),
        watch=context.watch_rule(""),
    )
    matches = compile_match_conditions(
        spec.match_conditions,
        language,
        ignore_errors=spec.failure_policy == "Ignore",
    )
    view = around.native_viewpoint.view([each.expression for each in spec.match_conditions])
    return None if matches is None else lambda case: matches(view(case))
