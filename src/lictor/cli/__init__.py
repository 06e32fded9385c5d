"""The command line: read arguments, call one function, print, exit.

No decision about policies is taken here.
"""
