"""From model to program.

The only room that knows both how to match and how to evaluate; nothing runs here.
"""
