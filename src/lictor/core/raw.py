"""Plain JSON as it comes from files and API servers: the one place where `Any` is at home."""

from typing import Any, TypeAlias

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
