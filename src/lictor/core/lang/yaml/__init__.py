"""YAML as Kubernetes reads it: text into nodes, nodes into plain JSON.

Files and lines are the business of `load`; here a fault knows only its line and column.
"""
