"""Builds programs from records.

The only package that uses both `match` and `evaluate`; nothing is evaluated here.
"""
