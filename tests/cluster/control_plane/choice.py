"""On which kinds of cluster does the suite run?"""

import os

import pytest

# Kinds of cluster on which the same suite runs: all, or those that this variable names.
KINDS = ("embedded", "real")
CHOICE = "LICTOR_CLUSTER"


def choose_kinds() -> tuple[str, ...]:
    """The kinds that are asked for, in their usual order."""
    asked = {word.strip() for word in os.environ.get(CHOICE, "").split(",") if word.strip()}
    if unknown := asked - set(KINDS):
        raise pytest.UsageError(f"{CHOICE}: {', '.join(sorted(unknown))}? There are {KINDS}")
    return tuple(kind for kind in KINDS if not asked or kind in asked)
