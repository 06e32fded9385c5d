"""Kubewarden's policies in WebAssembly (policies.kubewarden.io)."""

from typing import TYPE_CHECKING

from lictor.addons.kubewarden.family.policy_server import (
    AUTHORITY_SECRET,
    DEFAULT_SERVER,
    FINALIZER,
    SERVER_LABEL,
    choose_prefix,
)
from lictor.core.families.registry import AGE_COLUMN, CrdShape, PolicyKind, Role, WebhookPath
from lictor.core.model.program import Phase
from lictor.core.model.result import RuleType

if TYPE_CHECKING:
    from lictor.addons.kubewarden.family.records import WasmRecord
    from lictor.core.raw import JsonObject

_GROUP = "policies.kubewarden.io"
_HERE = "lictor.addons.kubewarden.family"
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


def skips_scan(record: "WasmRecord") -> bool:
    """Is it left out of background audits? Those ask as if objects were created."""
    spec = record.spec
    creates = any({"CREATE", "*"} & set(rule.operations) for rule in spec.rules)
    return not (spec.background_audit and creates)


def list_expected_work(record: "WasmRecord") -> frozenset[RuleType]:
    """A test hears of each policy that it names, whatever it says."""
    changes = getattr(record.spec, "mutating", False)
    return frozenset([RuleType.MUTATION if changes else RuleType.VALIDATION])


def read_mode(record: "WasmRecord") -> str:
    """Does it refuse, or only tell?"""
    return record.spec.mode


def keep_status(
    _record: object, _kind: PolicyKind, old: "JsonObject", _facts: object, _now: str
) -> "JsonObject":
    """The status as it is: whoever keeps the policy servers writes it."""
    return old


def _declare(kind: str, short_name: str, record: str, crd: CrdShape) -> PolicyKind:
    is_group, namespaced = kind.endswith("Group"), not kind.startswith("Cluster")
    plural = kind.lower()
    prefix = choose_prefix(namespaced=namespaced, is_group=is_group)
    return PolicyKind(
        family="kubewarden",
        group=_GROUP,
        kind=kind,
        plural=f"{plural}s" if is_group else f"{plural.removesuffix('y')}ies",
        namespaced=namespaced,
        # Groups came after v1alpha2.
        versions=("v1",) if is_group else ("v1", "v1alpha2"),
        preferred_version="v1",
        short_name=short_name,
        phases=(Phase.VALIDATE,) if is_group else (Phase.MUTATE, Phase.VALIDATE),
        record=f"{_HERE}.records:{record}",
        compile=f"{_HERE}.compiler:compile_wasm_policy",
        compile_failing=f"{_HERE}.compiler:fail_wasm_policy",
        refer_to=f"{_HERE}.reporting:refer_to_policy",
        crd=crd,
        path=WebhookPath(
            policy_prefix=prefix, mutating=not is_group, default_server=DEFAULT_SERVER
        ),
        finalizer=FINALIZER,
        build_status=keep_status,
        skips_scan=skips_scan,
        expected_work=list_expected_work,
        read_mode=read_mode,
        lint=f"{_HERE}.validation:check_document",
        review_change=f"{_HERE}.validation:check_change",
        locate_files=f"{_HERE}.records:locate_modules",
        locate_files_of_document=f"{_HERE}.records:locate_modules_of_document",
        explain="lictor.core.report.explanation:explain_wasm_policy",
        report_source="kubewarden",
    )


def _describe(description: str, *, is_group: bool = False) -> CrdShape:
    return CrdShape(
        "v1*" if is_group else "v1* v1alpha2!",
        description,
        status="WasmPolicyStatus",
        columns="\n".join(
            line for line in _COLUMNS.splitlines() if not (is_group and line.startswith("Mutating"))
        ),
        category="",
    )


KINDS = (
    _declare(
        "ClusterAdmissionPolicy",
        "cap",
        "ClusterWasmPolicy",
        _describe("A policy in WebAssembly, for the whole cluster."),
    ),
    _declare(
        "AdmissionPolicy",
        "ap",
        "WasmPolicy",
        _describe("A policy in WebAssembly, for the namespace that it is in."),
    ),
    _declare(
        "ClusterAdmissionPolicyGroup",
        "capg",
        "ClusterWasmGroup",
        _describe(
            "Policies in WebAssembly that decide together, for the whole cluster.", is_group=True
        ),
    ),
    _declare(
        "AdmissionPolicyGroup",
        "apg",
        "WasmGroup",
        _describe(
            "Policies in WebAssembly that decide together, for the namespace that they are in.",
            is_group=True,
        ),
    ),
    PolicyKind(
        family="kubewarden",
        group=_GROUP,
        kind="PolicyServer",
        plural="policyservers",
        namespaced=False,
        versions=("v1", "v1alpha2"),
        preferred_version="v1",
        short_name="ps",
        role=Role.SERVER,
        is_listed=False,
        record=f"{_HERE}.records:PolicyServerDocument",
        finalizer=FINALIZER,
        parts_label=SERVER_LABEL,
        authority_secret=AUTHORITY_SECRET,
        crd=CrdShape(
            "v1* v1alpha2!",
            "Pods that evaluate policies in WebAssembly.",
            status="PolicyServerStatus",
            columns="""
Replicas | string | .spec.replicas
Image | string | .spec.image
""",
            category="",
        ),
    ),
)
