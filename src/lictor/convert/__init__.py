"""Classic policies become CEL policies, as plain JSON, or are refused with the reason.

Nothing here judges a request: whether both forms agree is found out by those who run them.
"""
