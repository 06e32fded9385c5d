"""Generators of policies, one module for each family."""
