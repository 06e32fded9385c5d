"""What is wrong with files of policies, exceptions and tests: found, located, and written down.

Files come in as bytes, findings go out; nothing is compiled for use, read from disk or printed.
"""

from lictor.lint.catalog import CHECKS, CheckInfo
from lictor.lint.companions import KnownRules, lint_cleanup, lint_exception
from lictor.lint.policy import lint_policy
from lictor.lint.test_file import Inventory, lint_test, list_files

__all__ = [
    "CHECKS",
    "CheckInfo",
    "Inventory",
    "KnownRules",
    "lint_cleanup",
    "lint_exception",
    "lint_policy",
    "lint_test",
    "list_files",
]
