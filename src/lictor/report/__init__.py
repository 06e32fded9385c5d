"""The way out: verdicts become tables, policy reports, JUnit, SARIF, explanations.

Nothing is decided or printed here.
"""
