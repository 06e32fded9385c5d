"""A cluster as commands use it: its policies, its resources, and answers to what policies ask.

Nothing here writes to the cluster, and nothing decides about policies.
"""
