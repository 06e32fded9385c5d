"""What an installation consists of: kinds, rights, settings, Deployments, Services.

Manifests are computed from records and small tables; only `installing` sends them anywhere, and
no policy is evaluated here.
"""
