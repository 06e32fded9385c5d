"""An API server for people without a cluster and for tests.

It does what kube-apiserver does, and knows nothing of Kyverno's policies: those come as webhooks,
as on any other cluster.
"""
