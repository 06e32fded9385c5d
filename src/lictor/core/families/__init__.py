"""The families of policies: one package for each, which declares its kinds once in the registry.

What is about one kind stands in its family. No request is evaluated here, and nothing is read from
a disk or a network. Families do not import each other.
"""
