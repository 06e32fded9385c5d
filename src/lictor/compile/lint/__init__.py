"""What is wrong with a policy, told from its text alone.

Nothing is compiled for use here, no file is read, and no line number is known.
"""

from lictor.compile.lint.catalog import CHECKS, CheckInfo, Severity
from lictor.compile.lint.companions import KnownRules, lint_cleanup, lint_exception
from lictor.compile.lint.fault import Fault, Spot
from lictor.compile.lint.policy import lint_policy
from lictor.compile.lint.test_file import Inventory, lint_test, list_files

__all__ = [
    "CHECKS",
    "CheckInfo",
    "Fault",
    "Inventory",
    "KnownRules",
    "Severity",
    "Spot",
    "lint_cleanup",
    "lint_exception",
    "lint_policy",
    "lint_test",
    "list_files",
]
