"""Certificates, tokens and signatures: what they say and whether a key made them.

No key is made, stored or fetched here; what is trusted is told by the caller.
"""
