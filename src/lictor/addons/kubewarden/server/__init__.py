"""A policy server for Kubewarden's policies: `policies.yml` in, answers to reviews out.

Nothing here knows policies of other families, and nothing is reconciled.
"""
