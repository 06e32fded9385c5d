"""Policy files sorted by what can be done with them: use, except, or say why neither."""

from collections.abc import Iterable

import msgspec

from lictor.cli.sources import Text
from lictor.errors import LoadError
from lictor.load.policies import Loaded, load_documents
from lictor.load.problem import Problem, Severity
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.policy import Policy

# Objects that belong to policies and judge nothing themselves.
_COMPANIONS = ("Binding", "PolicyException", "GlobalContextEntry")


class Unusable(msgspec.Struct, frozen=True):
    """A policy that cannot be used, and why."""

    name: str
    kind: str
    reason: str
    # A whole family of policies that comes later, not a fault of this one.
    is_later: bool = False


class LoadedPolicies(msgspec.Struct, frozen=True):
    """What policy files hold."""

    usable: tuple[Policy, ...] = ()
    exceptions: tuple[PolicyException, ...] = ()
    unusable: tuple[Unusable, ...] = ()
    cleanups: tuple[CleanupPolicy, ...] = ()
    warnings: tuple[str, ...] = ()


def load_policy_files(texts: Iterable[Text]) -> LoadedPolicies:
    """Sort the documents of all files."""
    loaded = Loaded()
    for text in texts:
        loaded += load_documents(text.content, text.path)
    names = {policy.record.metadata.name for policy in loaded.policies}
    errors = [found for found in loaded.problems if found.severity is Severity.ERROR]
    return LoadedPolicies(
        usable=tuple(policy.record for policy in loaded.policies),
        exceptions=tuple(exception.record for exception in loaded.exceptions),
        cleanups=tuple(cleanup.record for cleanup in loaded.cleanups),
        unusable=(*_list_broken(errors, names), *_list_later(loaded)),
        warnings=tuple(str(found) for found in loaded.problems if found not in errors)
        + tuple(
            f"{found.source}:{found.position()[0]}: "
            f"{found.record.get('kind')} is not a policy and was left out"
            for found in loaded.resources
        ),
    )


def load_exceptions(texts: Iterable[Text]) -> tuple[PolicyException, ...]:
    """Files that hold exceptions and nothing else."""
    loaded = Loaded()
    for text in texts:
        loaded += load_documents(text.content, text.path)
    for problem in loaded.problems:
        if problem.severity is Severity.ERROR:
            raise LoadError(f"failed to load exceptions ({problem})")
    for policy in loaded.policies:
        raise LoadError(f"policy exception type not supported {policy.record.kind}")
    return tuple(exception.record for exception in loaded.exceptions)


def _list_broken(errors: Iterable[Problem], usable: set[str]) -> list[Unusable]:
    """One entry for each broken document, with the first thing that is wrong with it."""
    found: dict[tuple[str, str, str], Unusable] = {}
    for error in errors:
        if error.name in usable:
            continue
        key = (error.source, error.kind, error.name or str(error.line))
        name = error.name or error.source
        found.setdefault(key, Unusable(name, error.kind, str(error)))
    return list(found.values())


def _list_later(loaded: Loaded) -> list[Unusable]:
    later = [
        (raw.record.name, raw.record.kind)
        for raw in loaded.raw
        if not raw.record.kind.endswith(_COMPANIONS)
    ]
    return [
        Unusable(name, kind, f"policies of kind {kind} are not supported yet", is_later=True)
        for name, kind in later
    ]
