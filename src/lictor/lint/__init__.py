"""What is wrong with files of policies, exceptions and tests: found, located, and written down.

Files come in as bytes, findings go out; nothing is compiled for use, read from disk or printed.
"""

from lictor.lint.catalog import CHECKS, CheckInfo, Severity
from lictor.lint.companions import KnownRules, lint_cleanup, lint_exception
from lictor.lint.fault import Fault, Spot
from lictor.lint.policy import lint_policy
from lictor.lint.test_file import Inventory, lint_test, list_files

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
