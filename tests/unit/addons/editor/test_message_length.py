"""What does `lictor lsp` do where an editor sends messages of a wrong length?"""

import subprocess
import sys

import pytest

BODY = b'{"jsonrpc":"2.0","method":"$/nothing"}'


def send(data: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-P", "-m", "lictor", "lsp"]
    return subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"Content-Length: %d\r\n\r\n%b" % (len(BODY) + 5, BODY), "but only 38 bytes came"),
        (b"Content-Length: 20\r\n\r\n" + BODY, "hold no message"),
        (b"Content-Length: 0\r\n\r\n", "Content-Length must be 1 to"),
        (b"Content-Length: 99999999999999999999\r\n\r\n", "a message needs a Content-Length"),
        (b"Content-Length: -1\r\n\r\n", "a message needs a Content-Length"),
        (b"\r\n", "a message needs a Content-Length"),
        (b"GET / HTTP/1.1\r\n\r\n", "expected a header"),
        (b"a" * 100_000, "expected a header"),
    ],
)
def test_a_wrong_length_is_an_error(data: bytes, told: str) -> None:
    ended = send(data)
    assert ended.returncode == 1
    assert told in ended.stderr.decode()


def test_messages_of_the_right_length_are_read() -> None:
    ended = send(b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
    assert ended.returncode == 0
    assert b"lictor lsp:" not in ended.stderr
