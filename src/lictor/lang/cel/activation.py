"""The values of one request, converted for the engine once and shared by all expressions."""

from collections.abc import Mapping

import msgspec

from lictor.lang.cel.environment import runtime
from lictor.lang.cel.values import weigh
from lictor.raw import Json


class Activation(msgspec.Struct, frozen=True):
    """Values by variable name, in the engine's own form (each converted when first used)."""

    native: Json
    values: Mapping[str, Json]
    # Whether a value may hold a list so long that loops over it must be cut into pieces.
    is_large: bool = False


def make_activation(values: Mapping[str, Json]) -> Activation:
    """Hand `object`, `request`, `params` and so on to the engine."""
    weighed = {name: weigh(value) for name, value in values.items()}
    admitted = {name: value for name, (value, _) in weighed.items()}
    is_large = any(large for _, large in weighed.values())
    return Activation(runtime().Activation(admitted), admitted, is_large)
