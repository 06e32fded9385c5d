"""CEL in rules: what expressions see of a request, and what their values mean.

No policy is compiled here. Importing a module of this package loads the CEL engine.
"""
