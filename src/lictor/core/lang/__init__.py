"""The small languages of policies: text in, callable out.

None knows what a policy is; nothing here does I/O.
"""
