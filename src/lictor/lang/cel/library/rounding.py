"""Kyverno's `math.round(number, digits)`: half away from zero."""

import math

from lictor.lang.cel.declaration import function


def _round(number: float, digits: int) -> float:
    try:
        shift = 10.0**digits
    except OverflowError:
        shift = math.inf
    shifted = number * shift
    if not math.isfinite(shifted):
        return shifted / shift
    rounded = math.copysign(math.floor(abs(shifted) + 0.5), shifted)
    # Just below a half, adding a half already rounds up.
    if abs(shifted) + 0.5 == abs(rounded) and abs(shifted) - math.floor(abs(shifted)) < 0.5:
        rounded = math.copysign(math.floor(abs(shifted)), shifted)
    return rounded / shift if shift else math.nan


OVERLOADS = (function("math.round", "double, int -> double", _round),)
