"""The edge to the Kubernetes API: client, watch caches, leases, settings, stored policies.

No request is evaluated here, and no object is changed but by the client's own verbs.
"""
