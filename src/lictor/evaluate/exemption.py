"""Exceptions as a check sees them: those that hold for a case."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lictor.evaluate.setting import Outcome, Setting
from lictor.model.policy import PodSecurityStandard
from lictor.model.program import Case
from lictor.model.result import ExceptionRef, Result, Status


class Exempted(msgspec.Struct, frozen=True):
    """An exception that holds; with `pod_security`, only from those controls."""

    ref: ExceptionRef
    pod_security: tuple[PodSecurityStandard, ...] = ()


Exempt: TypeAlias = Callable[[Case], tuple[Exempted, ...]]


def skip_exempted(case: Case, found: tuple[Exempted, ...], setting: Setting) -> Result:
    """The answer of a rule from which the case is freed."""
    names = ", ".join(each.ref.key for each in found)
    outcome = Outcome(Status.SKIP, f"rule is skipped due to policy exceptions {names}")
    return setting.result(case, outcome, exceptions=tuple(each.ref for each in found))
