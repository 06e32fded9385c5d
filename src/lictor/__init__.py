"""lictor: evaluate Kubernetes resources against policies.

    engine = lictor.Engine(lictor.load_policies("policies/"))
    verdict = engine.evaluate(pod)
    verdict.allowed, [(r.policy.name, r.rule, r.status, r.message) for r in verdict.results]

What is named in `__all__` is the public API; everything else may change without notice. Names load
when they are first used, so that `import lictor` costs next to nothing.
"""

from lictor.core.release import VERSION

__version__ = VERSION

# Known to type checkers, false to Python: `typing` would cost more than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from lictor.cli.inputs.resources import load_files as load_resources
    from lictor.core.assembly import PolicyEngine as Engine
    from lictor.core.assembly import load_policies, parse_policies
    from lictor.core.compile.context import CompileContext
    from lictor.core.compile.selection import select_constrained
    from lictor.core.errors import (
        CompileError,
        DeadlineError,
        EvaluationError,
        LictorError,
        LoadError,
        LookupFailedError,
        PolicyError,
        UsageError,
    )
    from lictor.core.families.family import Family, PolicyKind, expect_record
    from lictor.core.families.kind_facts import CrdShape, WebhookMatch, WebhookPath
    from lictor.core.families.registry import refer
    from lictor.core.model.constraints import MatchResources
    from lictor.core.model.finding import Finding
    from lictor.core.model.metadata import Metadata, PolicyRecord
    from lictor.core.model.program import Case, Check, CompiledRule, Phase, Program
    from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
    from lictor.core.model.result import (
        Action,
        Failure,
        PolicyRef,
        Result,
        RuleType,
        Status,
        Verdict,
    )
    from lictor.core.ports import ApiCall, Lookups, NoLookups
    from lictor.core.raw import Json, JsonObject

_HOMES = {
    "lictor.core.assembly": ("Engine", "load_policies", "parse_policies"),
    "lictor.core.errors": (
        "CompileError",
        "DeadlineError",
        "EvaluationError",
        "LictorError",
        "LoadError",
        "LookupFailedError",
        "PolicyError",
        "UsageError",
    ),
    "lictor.core.compile.context": ("CompileContext",),
    "lictor.core.compile.selection": ("select_constrained",),
    "lictor.core.families.family": ("Family", "PolicyKind", "expect_record"),
    "lictor.core.families.kind_facts": ("CrdShape", "WebhookMatch", "WebhookPath"),
    "lictor.core.families.registry": ("refer",),
    "lictor.core.model.constraints": ("MatchResources",),
    "lictor.core.model.finding": ("Finding",),
    "lictor.core.model.metadata": (
        "Metadata",
        "PolicyRecord",
    ),
    "lictor.core.raw": (
        "Json",
        "JsonObject",
    ),
    "lictor.core.model.program": ("Case", "Check", "CompiledRule", "Phase", "Program"),
    "lictor.core.model.request": ("Caller", "GroupVersionKind", "Operation", "Request"),
    "lictor.core.model.result": (
        "Action",
        "Failure",
        "PolicyRef",
        "Result",
        "RuleType",
        "Status",
        "Verdict",
    ),
    "lictor.cli.inputs.resources": ("load_resources",),
    "lictor.core.ports": ("ApiCall", "Lookups", "NoLookups"),
}
# Public names that are others at home.
_OWN_NAMES = {"Engine": "PolicyEngine", "load_resources": "load_files"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Action",
    "ApiCall",
    "Caller",
    "Case",
    "Check",
    "CompileContext",
    "CompileError",
    "CompiledRule",
    "CrdShape",
    "DeadlineError",
    "Engine",
    "EvaluationError",
    "Failure",
    "Family",
    "Finding",
    "GroupVersionKind",
    "Json",
    "JsonObject",
    "LictorError",
    "LoadError",
    "LookupFailedError",
    "Lookups",
    "MatchResources",
    "Metadata",
    "NoLookups",
    "Operation",
    "Phase",
    "PolicyError",
    "PolicyKind",
    "PolicyRecord",
    "PolicyRef",
    "Program",
    "Request",
    "Result",
    "RuleType",
    "Status",
    "UsageError",
    "Verdict",
    "WebhookMatch",
    "WebhookPath",
    "expect_record",
    "load_policies",
    "load_resources",
    "parse_policies",
    "refer",
    "select_constrained",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'lictor' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), _OWN_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
