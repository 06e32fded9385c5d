"""Is this an Ed25519ph signature (RFC 8032, the message hashed first) by that key?

The library knows plain Ed25519 only, and cosign signs with the pre-hashed form. Verifying handles
nothing secret, so that plain arithmetic will do.
"""

from hashlib import sha512
from typing import TypeAlias

_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
_ROOT_OF_MINUS_ONE = pow(2, (_PRIME - 1) // 4, _PRIME)
# Before what is hashed: this is the pre-hashed form (1), and it has no context (0).
_DOMAIN = b"SigEd25519 no Ed25519 collisions\x01\x00"

_NEUTRAL = (1).to_bytes(32, "little")

# Extended homogeneous coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z.
_Point: TypeAlias = tuple[int, int, int, int]


def accepts_prehashed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Check the signature of a message by a key of 32 bytes."""
    public = _read_point(key)
    # Of small order: such a key accepts what nobody signed.
    if len(signature) != 64 or public is None or _write_point(_multiply(public, 8)) == _NEUTRAL:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    # A scalar beyond the order would be a second form of the same signature.
    if scalar >= _ORDER:
        return False
    hashed = sha512(_DOMAIN + signature[:32] + key + sha512(message).digest()).digest()
    challenge = int.from_bytes(hashed, "little") % _ORDER
    negated = (_PRIME - public[0], public[1], public[2], _PRIME - public[3])
    point = _add(_multiply(_BASE, scalar), _multiply(negated, challenge))
    return _write_point(point) == signature[:32]


def _add(left: _Point, right: _Point) -> _Point:
    a = (left[1] - left[0]) * (right[1] - right[0]) % _PRIME
    b = (left[1] + left[0]) * (right[1] + right[0]) % _PRIME
    c = 2 * left[3] * right[3] * _D % _PRIME
    d = 2 * left[2] * right[2] % _PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME


def _multiply(point: _Point, scalar: int) -> _Point:
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _read_point(data: bytes) -> _Point | None:
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(data) != 32 or y >= _PRIME:
        return None
    x = _find_x(y, sign)
    return None if x is None else (x, y, 1, x * y % _PRIME)


def _find_x(y: int, sign: int) -> int | None:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * _ROOT_OF_MINUS_ONE % _PRIME
    if (x * x - square) % _PRIME or (x == 0 and sign):
        return None
    return x if x & 1 == sign else _PRIME - x


def _write_point(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _PRIME)
    x, y = point[0] * inverse % _PRIME, point[1] * inverse % _PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


_Y = 4 * pow(5, -1, _PRIME) % _PRIME
_X = _find_x(_Y, 0) or 0
_BASE: _Point = (_X, _Y, 1, _X * _Y % _PRIME)
