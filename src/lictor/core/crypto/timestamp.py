"""When were these bytes seen? RFC 3161 time stamps by authorities that are trusted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lictor.core.crypto.certificate_chain import (
    TIME_STAMPING,
    Anchors,
    build_chain,
    find_extension,
    load_certificate,
)
from lictor.core.crypto.log_key import ALWAYS, Period
from lictor.core.errors import SignatureRefusedError

# Loading the libraries takes a while, and few signatures have time stamps: imported where used.
if TYPE_CHECKING:
    from cryptography import x509
    from rfc3161_client import TimeStampResponse

_LARGEST = 64 * 1024
_MOST_EMBEDDED = 16
_GRANTED = bytes.fromhex("3003020100")
_SEQUENCE = 0x30


@dataclass(frozen=True, slots=True)
class TimestampAuthority:
    """The certificates of an authority, its own first (where it is given) and its root last."""

    certificates: "tuple[x509.Certificate, ...]"
    period: Period = ALWAYS


def check_timestamp(
    stamp: bytes, message: bytes, authorities: Sequence[TimestampAuthority]
) -> datetime:
    """The time of a time stamp (DER) of the message; SignatureRefusedError if it is invalid."""
    from rfc3161_client import decode_timestamp_response

    if len(stamp) > _LARGEST:
        raise SignatureRefusedError(f"a time stamp of more than {_LARGEST} bytes")
    reasons = ["no time stamp authority is trusted"]
    for authority in authorities:
        try:
            # Decoded each time: the library takes pieces out of what it verifies.
            return _check(decode_timestamp_response(stamp), message, authority)
        except (SignatureRefusedError, ValueError) as error:
            reasons.insert(0, str(error))
    raise SignatureRefusedError(f"the time stamp is not right: {reasons[0]}")


def wrap_token(token: bytes) -> bytes:
    """Make a granted response of a bare time stamp token: both in DER."""
    content = _GRANTED + token
    if len(content) < 0x80:
        return bytes((_SEQUENCE, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    return bytes((_SEQUENCE, 0x80 | len(length))) + length + content


def _check(
    response: "TimeStampResponse", message: bytes, authority: TimestampAuthority
) -> datetime:
    from rfc3161_client import VerificationError, VerifierBuilder

    time = response.tst_info.gen_time
    if not authority.period.contains(time):
        raise SignatureRefusedError("the time stamp authority was not trusted at that time")
    *others, root = authority.certificates
    leaf = _find_leaf(response, authority)
    intermediates = [certificate for certificate in others if certificate != leaf]
    # What comes with the time stamp helps to reach the root, and is trusted for nothing.
    embedded = [certificate for certificate in _read_embedded(response) if certificate != leaf]
    build_chain(leaf, Anchors((root,), (*intermediates, *embedded)), time, TIME_STAMPING)
    builder = VerifierBuilder(tsa_certificate=leaf, intermediates=intermediates, roots=[root])
    try:
        builder.build().verify_message(response, message)
    except VerificationError as error:
        # The library's message is a list of OpenSSL's own errors.
        raise SignatureRefusedError("no trusted authority made it for this signature") from error
    return time


def _find_leaf(response: "TimeStampResponse", authority: TimestampAuthority) -> "x509.Certificate":
    """The authority's own certificate; where its chain has only CAs, that in the time stamp."""
    first = authority.certificates[0]
    if not _is_authority(first):
        return first
    leaves = [item for item in _read_embedded(response) if not _is_authority(item)]
    if len(leaves) != 1:
        raise SignatureRefusedError("it does not contain the certificate of its authority")
    return leaves[0]


def _read_embedded(response: "TimeStampResponse") -> "list[x509.Certificate]":
    found = response.signed_data.certificates
    if len(found) > _MOST_EMBEDDED:
        raise SignatureRefusedError(f"a time stamp with more than {_MOST_EMBEDDED} certificates")
    return [load_certificate(data) for data in found]


def _is_authority(certificate: "x509.Certificate") -> bool:
    from cryptography import x509

    basic = find_extension(certificate, x509.BasicConstraints)
    return basic is not None and basic.ca
