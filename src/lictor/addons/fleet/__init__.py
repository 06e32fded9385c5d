"""`apply` on many files, in processes of this machine or on a Ray cluster.

A worker uses the same `ApplyRun` as a run on one machine. This package prints nothing.
"""
