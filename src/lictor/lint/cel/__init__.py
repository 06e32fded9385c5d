"""What is wrong with policies in CEL, told from their text alone.

Nothing is compiled for use here. The engine of the language is loaded only when there is an
expression to look at.
"""

from lictor.lint.cel.companions import KnownPolicies, lint_binding, lint_cel_exception
from lictor.lint.cel.policies import lint_cel_policy

__all__ = ["KnownPolicies", "lint_binding", "lint_cel_exception", "lint_cel_policy"]
