"""Kubewarden's policies in WebAssembly (policies.kubewarden.io)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from lictor.addons.kubewarden.family.policy_server import (
    AUTHORITY_SECRET,
    DEFAULT_SERVER,
    FINALIZER,
    SERVER_LABEL,
    choose_prefix,
)
from lictor.core.families.family import Family, PolicyKind
from lictor.core.families.kind_facts import AGE_COLUMN, CrdShape, Role, WebhookPath
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import PolicyRef, Result, RuleType
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.addons.kubewarden.family.records import WasmRecord
    from lictor.core.compile.context import CompileContext
    from lictor.core.errors import LictorError
    from lictor.core.families.explanation import RuleExplanation
    from lictor.core.families.policy_status import PolicyFacts
    from lictor.core.lang.wasm_module import Modules
    from lictor.core.lang.watch import ClosureAnswer
    from lictor.core.model.finding import Finding
    from lictor.core.model.program import Program

_GROUP = "policies.kubewarden.io"
_COLUMNS = f"""
Policy Server | string | .spec.policyServer
Mutating | boolean | .spec.mutating
BackgroundAudit | boolean | .spec.backgroundAudit
Mode | string | .spec.mode
Observed mode | string | .status.mode
Status | string | .status.policyStatus
{AGE_COLUMN.replace("AGE", "Age")}
Severity | string | .metadata.annotations['io\\.kubewarden\\.policy\\.severity'] | +
Category | string | .metadata.annotations['io\\.kubewarden\\.policy\\.category'] | +
"""
_SERVER_COLUMNS = """
Replicas | string | .spec.replicas
Image | string | .spec.image
"""
_GROUP_WORDS = "Policies in WebAssembly that decide together"


class KubewardenFamily(Family):
    """AdmissionPolicy, groups of such policies, and the servers that run them."""

    name = "kubewarden"
    names_files = True

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        return (
            self._declare("ClusterAdmissionPolicy", "cap", "A policy in WebAssembly"),
            self._declare("AdmissionPolicy", "ap", "A policy in WebAssembly"),
            self._declare("ClusterAdmissionPolicyGroup", "capg", _GROUP_WORDS),
            self._declare("AdmissionPolicyGroup", "apg", _GROUP_WORDS),
            self._declare_server(),
        )

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        from lictor.addons.kubewarden.family.records import RECORDS

        return RECORDS[kind.kind]

    def locate_files(self, record: PolicyRecord, folder: str) -> PolicyRecord:
        from lictor.addons.kubewarden.family.records import WasmRecord, locate_modules

        return locate_modules(record, folder) if isinstance(record, WasmRecord) else record

    def locate_document_files(self, document: JsonObject, folder: str) -> JsonObject:
        from lictor.addons.kubewarden.family.records import locate_modules_of_document

        return locate_modules_of_document(document, folder)

    def complete_reference(self, record: PolicyRecord, ref: PolicyRef) -> PolicyRef:
        from lictor.addons.kubewarden.family.reporting import refer_to_policy

        return refer_to_policy(_as_policy(record), ref)

    def compile(self, record: PolicyRecord, context: "CompileContext") -> "Program":
        from lictor.addons.kubewarden.family.compiler import compile_wasm_policy

        return compile_wasm_policy(_as_policy(record), context)

    def compile_failing(
        self, record: PolicyRecord, error: "LictorError", context: "CompileContext"
    ) -> "Program":
        from lictor.addons.kubewarden.family.compiler import fail_wasm_policy

        return fail_wasm_policy(_as_policy(record), error, context)

    def review_change(self, document: JsonObject, old: JsonObject) -> "Iterable[Finding]":
        from lictor.addons.kubewarden.family.validation import check_change

        return check_change(document, old)

    def lint(self, kind: PolicyKind, document: Json) -> "Iterable[Finding]":
        from lictor.addons.kubewarden.family.validation import check_document

        return check_document(kind, document) if kind.role is Role.POLICY else ()

    def list_expected_work(self, record: PolicyRecord) -> frozenset[RuleType]:
        """A test expects a result of each policy that it names."""
        changes = getattr(record.spec, "mutating", False)
        return frozenset([RuleType.MUTATION if changes else RuleType.VALIDATION])

    def explain(
        self,
        record: PolicyRecord,
        bindings: Sequence[PolicyRecord],
        recorded: "Sequence[ClosureAnswer]",
        results: Sequence[Result],
    ) -> "tuple[RuleExplanation, ...]":
        from lictor.addons.kubewarden.family.reporting import explain_policy

        return explain_policy(record, recorded, results)

    def read_mode(self, record: PolicyRecord) -> str:
        from lictor.addons.kubewarden.family.records import WasmRecord

        return record.spec.mode if isinstance(record, WasmRecord) else ""

    def build_status(
        self,
        kind: PolicyKind,
        record: PolicyRecord | None,
        old: JsonObject,
        facts: "PolicyFacts",
        now: str,
    ) -> JsonObject:
        """The status as it is: the controller of policy servers writes it."""
        return old

    def skips_scan(self, record: PolicyRecord) -> bool:
        """A background audit evaluates objects as if they were created."""
        spec = _as_policy(record).spec
        creates = any({"CREATE", "*"} & set(rule.operations) for rule in spec.rules)
        return not (spec.background_audit and creates)

    def find_services(self) -> Callable[..., object]:
        from lictor.addons.kubewarden.modules.policy_modules import PolicyModules

        return PolicyModules

    def find_controllers(self) -> object:
        from lictor.addons.kubewarden.controller import PolicyServerControllers

        return PolicyServerControllers()

    def open_modules(self) -> "Modules":
        from lictor.addons.kubewarden.modules.module_store import open_from_environment

        return open_from_environment()

    # --- declarations

    def _declare(self, kind: str, short_name: str, words: str) -> PolicyKind:
        is_group, namespaced = kind.endswith("Group"), not kind.startswith("Cluster")
        plural = kind.lower()
        prefix = choose_prefix(namespaced=namespaced, is_group=is_group)
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind=kind,
            plural=f"{plural}s" if is_group else f"{plural.removesuffix('y')}ies",
            namespaced=namespaced,
            # Groups came after v1alpha2.
            versions=("v1",) if is_group else ("v1", "v1alpha2"),
            preferred_version="v1",
            short_name=short_name,
            phases=(Phase.VALIDATE,) if is_group else (Phase.MUTATE, Phase.VALIDATE),
            crd=_describe(words, is_group=is_group, namespaced=namespaced),
            path=WebhookPath(
                policy_prefix=prefix, mutating=not is_group, default_server=DEFAULT_SERVER
            ),
            finalizer=FINALIZER,
            report_source="kubewarden",
        )

    def _declare_server(self) -> PolicyKind:
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind="PolicyServer",
            plural="policyservers",
            namespaced=False,
            versions=("v1", "v1alpha2"),
            preferred_version="v1",
            short_name="ps",
            role=Role.SERVER,
            is_listed=False,
            finalizer=FINALIZER,
            parts_label=SERVER_LABEL,
            authority_secret=AUTHORITY_SECRET,
            crd=CrdShape(
                "v1* v1alpha2!",
                "Pods that evaluate policies in WebAssembly.",
                status="PolicyServerStatus",
                columns=_SERVER_COLUMNS,
                category="",
            ),
        )


def _describe(words: str, *, is_group: bool, namespaced: bool) -> CrdShape:
    owner = "they are" if is_group else "it is"
    where = f"the namespace that {owner} in" if namespaced else "the whole cluster"
    return CrdShape(
        "v1*" if is_group else "v1* v1alpha2!",
        f"{words}, for {where}.",
        status="WasmPolicyStatus",
        columns="\n".join(
            line for line in _COLUMNS.splitlines() if not (is_group and line.startswith("Mutating"))
        ),
        category="",
    )


def _as_policy(record: PolicyRecord) -> "WasmRecord":
    from lictor.addons.kubewarden.family.records import WasmRecord

    if not isinstance(record, WasmRecord):
        raise TypeError(f"internal error: a Wasm policy expected, not {type(record).__name__}")
    return record


FAMILY = KubewardenFamily()
