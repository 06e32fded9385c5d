"""Errors of the system in plain words."""

import errno
import socket
import ssl

import pytest

from lictor.core.errors import describe_os_error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host"),
        (ssl.SSLCertVerificationError(1, "hostname mismatch"), "hostname mismatch"),
        (socket.gaierror(socket.EAI_NONAME, "name unknown"), "name unknown"),
        (OSError("no number"), "no number"),
    ],
)
def test_the_reason_is_named_without_its_number(error: OSError, expected: str) -> None:
    assert expected in describe_os_error(error)
