"""The small languages of policies: compile text to callables.

They know nothing of policies, and do no I/O.
"""
