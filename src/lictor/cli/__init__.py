"""The command line: reads arguments, calls one function of the library, prints, and exits.

No decision about policies is taken here.
"""
