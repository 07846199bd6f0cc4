"""A token endpoint on this machine, with scripted responses."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request of a client."""

    path: str
    headers: Mapping[str, str]
    body: str


class TokenEndpoint:
    """Answers with the responses one after the other, and the last one again and again."""

    def __init__(self, url: str, responses: list[tuple[int, Any]]) -> None:
        self.url = url
        self.responses = responses
        self.received: list[Received] = []

    def next(self) -> tuple[int, Any]:
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


@contextmanager
def token_endpoint(
    *responses: tuple[int, Any], certificate: tuple[Path, Path] | None = None
) -> Iterator[TokenEndpoint]:
    """Run an endpoint; `certificate` has the files of its certificate and key, for https."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            received = Received(self.path, dict(self.headers), self.rfile.read(length).decode())
            endpoint.received.append(received)
            status, document = endpoint.next()
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", f"{endpoint.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint = TokenEndpoint(f"{scheme}://127.0.0.1:{server.server_port}/token", list(responses))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
