"""What is wrong with files of policies and tests: found, located, and written down.

Files come in as bytes and findings go out; nothing is read from disk or printed here.
"""

from lictor.report.problems.finding import Finding, LintReport
from lictor.report.problems.lint import lint_texts
from lictor.report.problems.render import Format, render_report
from lictor.report.problems.tests import ReadFiles

__all__ = ["Finding", "Format", "LintReport", "ReadFiles", "lint_texts", "render_report"]
