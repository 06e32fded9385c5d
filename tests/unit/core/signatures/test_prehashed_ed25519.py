"""Ed25519ph signatures: the vector of RFC 8032, section 7.3, and what must be rejected."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl import bindings

from lictor.core.crypto.signature import accepts_prehashed

SECRET = bytes.fromhex("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42")
MESSAGE = b"abc"
SIGNATURE = bytes.fromhex(
    "98a70222f0b8121aa9d30f813d683f809e462b469c7ff87639499bb94e6dae41"
    "31f85042463c2a355a2003d062adf5aaa10b8c61e636062aaad11c2a26083406"
)
PUBLIC = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()


def test_the_vector_is_accepted() -> None:
    assert accepts_prehashed(PUBLIC, SIGNATURE, MESSAGE)


def test_nothing_else_is_accepted() -> None:
    assert not accepts_prehashed(PUBLIC, SIGNATURE, b"abd")
    for place in (0, 31, 32, 62, 63):
        forged = bytearray(SIGNATURE)
        forged[place] ^= 1
        assert not accepts_prehashed(PUBLIC, bytes(forged), MESSAGE)
    plain = Ed25519PrivateKey.from_private_bytes(SECRET).sign(MESSAGE)
    assert not accepts_prehashed(PUBLIC, plain, MESSAGE)


def test_a_number_beyond_the_order_is_refused() -> None:
    """Else one signature could be written in two ways."""
    order = 2**252 + 27742317777372353535851937790883648493
    number = int.from_bytes(SIGNATURE[32:], "little") + order
    assert not accepts_prehashed(PUBLIC, SIGNATURE[:32] + number.to_bytes(32, "little"), MESSAGE)


def test_what_is_no_signature_is_refused() -> None:
    assert not accepts_prehashed(PUBLIC, b"", MESSAGE)
    assert not accepts_prehashed(PUBLIC, SIGNATURE + b"0", MESSAGE)
    assert not accepts_prehashed(b"\xff" * 32, SIGNATURE, MESSAGE)
    # The neutral element as a key would accept any message.
    neutral = (1).to_bytes(32, "little")
    assert not accepts_prehashed(neutral, neutral + bytes(32), MESSAGE)


@pytest.mark.parametrize("message", [b"", b"x", b"y" * 100_000])
def test_messages_of_any_length_are_verified(message: bytes) -> None:
    seed = bytes(range(32))
    public, secret = bindings.crypto_sign_seed_keypair(seed)
    state = bindings.crypto_sign_ed25519ph_state()
    bindings.crypto_sign_ed25519ph_update(state, message)
    signature = bindings.crypto_sign_ed25519ph_final_create(state, secret)
    assert accepts_prehashed(public, signature, message)
    assert not accepts_prehashed(public, signature, message + b"z")
