"""From Kyverno to lictor and back: what is there, what would differ, and how it is done.

Reads an installation of Kyverno and says what is found. Only `restoring` writes to the cluster, and
nothing is judged here.
"""
