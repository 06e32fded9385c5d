"""lictor: judge Kubernetes resources by policy.

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
    from lictor.core.model.program import Program
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
    "lictor.core.model.program": ("Program",),
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
    "CompileError",
    "DeadlineError",
    "Engine",
    "EvaluationError",
    "Failure",
    "GroupVersionKind",
    "LictorError",
    "LoadError",
    "LookupFailedError",
    "Lookups",
    "NoLookups",
    "Operation",
    "PolicyError",
    "PolicyRef",
    "Program",
    "Request",
    "Result",
    "RuleType",
    "Status",
    "UsageError",
    "Verdict",
    "load_policies",
    "load_resources",
    "parse_policies",
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
