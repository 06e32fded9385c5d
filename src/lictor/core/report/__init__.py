"""Verdicts as admission responses, policy reports, events, tables, JUnit, SARIF and explanations.

Nothing is decided, printed or sent here.
"""
