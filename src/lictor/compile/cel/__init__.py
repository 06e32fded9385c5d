"""What policies in CEL share when they are compiled; no request is judged here.

Importing this package loads no engine of CEL.
"""
