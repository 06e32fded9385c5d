"""Access to the Kubernetes API: client, watch caches, leases, settings, stored policies.

No request is evaluated here, and only the client's verbs change objects.
"""
