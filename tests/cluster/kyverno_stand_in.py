"""Plays Kyverno's webhook server: refuses what is called bad, allows all else.

python kyverno_stand_in.py ADDRESS PORT CERTIFICATE KEY
"""

import json
import signal
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Set by SIGTERM; what comes in the next moments is still answered.
ENDING = threading.Event()
_GRACE = 2.0
REFUSAL = "names that begin with bad are refused"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A request that waits for its connection must not wait for ever.
    timeout = 30

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        request = review["request"]
        name = request.get("name") or (request.get("object") or {})["metadata"].get("name", "")
        allowed = "mutate" in self.path or not name.startswith("bad")
        response = {"uid": request["uid"], "allowed": allowed}
        if not allowed:
            response["status"] = {"message": REFUSAL}
        review = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        self._answer(json.dumps({**review, "response": response}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        if ENDING.is_set():
            # Whoever asks on this connection is to make another one, to somebody else.
            self.send_header("connection", "close")
            self.close_connection = True
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    address, port, certificate, key = sys.argv[1:]
    server = Server((address, int(port)), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    signal.signal(signal.SIGTERM, lambda *_: ENDING.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ENDING.wait()
    time.sleep(_GRACE)
