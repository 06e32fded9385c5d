"""Evaluates requests: does the object comply, or how must it change?

One module per type of rule; each builds a check. Nothing here selects the rules to run.
"""
