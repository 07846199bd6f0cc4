"""A server of the console's page with views and answers that a test sets; it needs no cluster."""

from __future__ import annotations

import json
import queue
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FOLDERS = ("konvene.console", "static"), ("konvene.pipeline.answers", "page")
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
NOW_MS = 1_800_000_000_000

Sections = dict[str, dict[str, Any]]


class Console:
    """The server: `views` by name, sent whole to each new connection, and answers of requests by path."""

    def __init__(self) -> None:
        self.views: dict[str, Sections] = {}
        self.answers: dict[str, tuple[int, Any]] = {}
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        """Path, body and console header of each POST."""
        self.facts: dict[str, Any] = {
            "cluster_id": "c-1", "bootstrap": "localhost:9092", "allow_changes": False, "error": None,
            "logs": {"state": "live", "percent": None, "message": None}, "now_ms": NOW_MS,
        }  # fmt: skip
        self._viewers: dict[str, list[queue.Queue[str | None]]] = defaultdict(list)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def whole(self, view: str) -> str:
        """Return the first event of a view."""
        sections = self.views.get(view, {})
        sections = {**sections, "facts": {**self.facts, **sections.get("facts", {})}}
        return _event("reset", {"sections": sections})

    def change(self, view: str, **change: Any) -> None:
        """Send a change to all that show the view."""
        for viewer in self._viewers[view]:
            viewer.put(_event("change", change))

    def disconnect(self, view: str) -> None:
        """Close the connections of all that show the view."""
        for viewer in self._viewers.pop(view, []):
            viewer.put(None)

    def follow(self, view: str) -> queue.Queue[str | None]:
        viewer: queue.Queue[str | None] = queue.Queue()
        self._viewers[view].append(viewer)
        return viewer

    def close(self) -> None:
        for view in list(self._viewers):
            self.disconnect(view)
        self._server.shutdown()
        self._server.server_close()


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _handler(console: Console) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def start(self, status: int, media_type: str) -> None:
            self.send_response(status)
            self.send_header("content-type", f"{media_type}; charset=utf-8")
            self.send_header("content-security-policy", POLICY)
            self.send_header("cache-control", "no-store")
            self.end_headers()

        def answer(self, status: int, media_type: str, body: bytes) -> None:
            self.start(status, media_type)
            self.wfile.write(body)

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/api/live":
                self.live(dict(parse_qsl(url.query))["view"])
            elif url.path.startswith("/static/"):
                self.file(url.path.removeprefix("/static/"))
            else:
                self.file("index.html")

        def file(self, name: str) -> None:
            for package, folder in FOLDERS:
                file = resources.files(package) / folder / name
                if file.is_file():
                    self.answer(200, MEDIA_TYPES[name.rpartition(".")[2]], file.read_bytes())
                    return
            self.answer(404, "text/plain", b"")

        def live(self, view: str) -> None:
            viewer = console.follow(view)
            event: str | None = "retry: 200\n\n" + console.whole(view)
            self.start(200, "text/event-stream")
            try:
                while event is not None:
                    self.wfile.write(event.encode())
                    event = viewer.get()
            except OSError:
                pass  # The page was left.

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            console.requests.append((self.path, body, self.headers.get("X-Konvene-Console")))
            status, answer = console.answers.get(self.path, (404, {"error": "no such path", "hint": None}))
            self.answer(status, "application/json", json.dumps(answer).encode())

    return Handler
