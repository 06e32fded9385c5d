"""Loads YAML files, test files and API objects as records. Nothing is evaluated here."""
