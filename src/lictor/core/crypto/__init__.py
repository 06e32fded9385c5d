"""Certificates, tokens and signatures: their content, and whether a key signed them.

No key is created, stored or fetched here; the caller passes what is trusted.
"""
