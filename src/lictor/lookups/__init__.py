"""Lookups of policies, implemented with a live cluster, services and registries."""
