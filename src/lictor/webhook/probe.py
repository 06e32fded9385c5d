"""Does a webhook process still answer? The parent connects over TLS like a client, and never waits.

A process whose loop runs may still not answer. Its port is shared with others, so that a client
cannot choose a process there: each process has its own socket, which leads to the same handler
and whose answer also shows whether waiting connections of the port are accepted.
"""

import contextlib
import socket
import ssl

_REQUEST = b"GET /health/liveness HTTP/1.1\r\nhost: lictor\r\nconnection: close\r\n\r\n"
_RIGHT = b"HTTP/1.1 200"
_BETWEEN_SECONDS = 2.0
_ATTEMPT_SECONDS = 5.0
_FIRST_SECONDS = 30.0
_ANSWER_SIZE = 4096


class Probe:
    """Probes one socket, again and again; `step` does what can be done at once."""

    def __init__(self, address: str) -> None:
        self._address = address
        # Only these processes can open the socket: there is nothing to verify.
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        # When it first connected, and when it last got a valid answer; 0: not yet.
        self._asking_since = 0.0
        self._answered = 0.0
        self.trouble = ""
        self._next_at = 0.0
        self._began = 0.0
        self._connection: ssl.SSLSocket | None = None
        self._has_asked = False

    def reset(self) -> None:
        """Another process is there now."""
        self._close()
        self._asking_since = self._answered = self._next_at = 0.0
        self.trouble = ""

    def is_answered(self, now: float, patience: float) -> bool:
        """Was there an answer not longer ago than this? The first may take its time."""
        if self._answered:
            return now < self._answered + patience
        return not self._asking_since or now < self._asking_since + _FIRST_SECONDS

    def step(self, now: float) -> None:
        """Go on as far as possible without waiting."""
        self._asking_since = self._asking_since or now
        if self._connection is None and now < self._next_at:
            return
        try:
            if now - self._began > _ATTEMPT_SECONDS and self._connection is not None:
                raise TimeoutError("no answer in time")
            self._ask(self._connection or self._begin(now))
            self._answered = now
            self._finish(now)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self.trouble = str(error) or repr(error)
            self._finish(now)

    def _begin(self, now: float) -> ssl.SSLSocket:
        self._began = now
        plain = socket.socket(socket.AF_UNIX)
        try:
            plain.settimeout(0)
            plain.connect(self._address)
            made = self._context.wrap_socket(plain, do_handshake_on_connect=False)
            self._connection = made
        finally:
            # After the wrapping it is detached, and closing it does nothing.
            plain.close()
        return made

    def _ask(self, connection: ssl.SSLSocket) -> None:
        """Raises where the answer is not right, or not there yet."""
        if not self._has_asked:
            connection.do_handshake()
            connection.sendall(_REQUEST)
            self._has_asked = True
        answer = connection.recv(_ANSWER_SIZE)
        if not answer.startswith(_RIGHT):
            raise ConnectionError(answer.partition(b"\r\n")[0].decode("latin-1") or "hung up")

    def _finish(self, now: float) -> None:
        self._close()
        self._next_at = now + _BETWEEN_SECONDS

    def _close(self) -> None:
        self._has_asked = False
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


def open_unix_socket(path: str, backlog: int = 8) -> socket.socket:
    """A Unix socket for one process, made before it is started."""
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(path)
    bound.listen(backlog)
    return bound
