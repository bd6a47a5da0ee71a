"""A web server on this machine that serves one file, as badly as it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    content: bytes
    status: int = 200
    length: bool = True  # say how long an answer is
    cut: int | None = None  # send so many bytes, then break the connection
    stall: float = 0.0  # seconds in the middle of an answer
    seen: list[str] = field(default_factory=list)  # the path of every request
    url: str = ""


@contextmanager
def serving(content: bytes) -> Iterator[Server]:
    state = Server(content)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            state.seen.append(self.path)
            body = state.content if state.status == 200 else b"no"
            end = len(body) // 2 if state.cut is None else state.cut
            self.send_response(state.status)
            if state.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:end])
            self.wfile.flush()
            time.sleep(state.stall)
            if state.cut is None:
                self.wfile.write(body[end:])

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # the client has gone
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        state.url = f"http://127.0.0.1:{server.server_port}/file"
        try:
            yield state
        finally:
            server.shutdown()
