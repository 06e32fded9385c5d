"""From Kyverno to lictor and back: what is there, what would differ, and how it is done.

Reads an installation of Kyverno and reports on it. Only `restoring` writes to the cluster, and
nothing is evaluated here.
"""
