"""Type aliases for plain JSON from files and API servers: the only place that uses `Any`."""

from typing import Any, TypeAlias

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
