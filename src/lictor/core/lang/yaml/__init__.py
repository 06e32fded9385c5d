"""YAML as Kubernetes reads it: parses text to nodes, and nodes to plain JSON.

Files are handled by `load`; a fault here has only its line and column.
"""
