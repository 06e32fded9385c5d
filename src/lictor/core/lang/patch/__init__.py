"""Patches of JSON documents; the input is never changed in place."""

from lictor.core.lang.patch.kyverno_patch import compile_json_patch, parse_json_patch
from lictor.core.lang.patch.overlay import ConditionNotMet, compile_overlay
from lictor.core.lang.patch.pointer import diff
from lictor.core.lang.patch.strategic_merge import merge_strategic

__all__ = [
    "ConditionNotMet",
    "compile_json_patch",
    "compile_overlay",
    "diff",
    "merge_strategic",
    "parse_json_patch",
]
