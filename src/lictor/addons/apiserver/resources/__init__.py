"""What is particular to each built-in kind, one place per kind. Nothing here reads the store."""
