"""Schemas of custom kinds: pruning, defaults, validation, rules in CEL. Nothing is stored here."""
