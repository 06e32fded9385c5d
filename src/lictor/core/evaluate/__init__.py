"""Is this request right, or how must it change?

One module per kind of rule; each builds a check. Nothing here chooses which rules run.
"""
