"""Finds problems in policies, exceptions and test files, from their text only.

Takes documents and returns findings; nothing is compiled for use, read from disk or printed.
"""
