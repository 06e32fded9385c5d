"""Classic policies become CEL policies, as plain JSON, or are refused with the reason.

No request is evaluated here; `comparison` compares the results that others give it.
"""
