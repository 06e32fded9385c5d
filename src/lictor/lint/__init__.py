"""What is wrong with policies, exceptions and test files, found from their text alone.

Documents come in, findings go out; nothing is compiled for use, read from disk or printed.
"""
