"""A web server on this machine that serves one file, as badly as it is told to."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """What it does; each entry of a list is for one request, the last for all further ones."""

    def __init__(self, content: bytes):
        self.content = content
        self.length = True
        self.statuses: list[int] = [200]
        self.cut: list[int | None] = [None]  # send so many bytes of an answer, then break the connection
        self.stall = [0.0]  # seconds in the middle of an answer
        self.seen: list[str] = []  # the path of every request
        self.url = ""

    @staticmethod
    def turn(entries, request):
        return entries[min(request, len(entries) - 1)]


@contextmanager
def serving(content: bytes):
    state = Server(content)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            request = len(state.seen)
            state.seen.append(self.path)
            self.close_connection = True
            status = state.turn(state.statuses, request)
            body = state.content if status == 200 else b"no"
            self.send_response(status)
            if state.length:
                self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            cut = state.turn(state.cut, request) if status == 200 else None
            half = len(body) // 2
            self.wfile.write(body[: half if cut is None else cut])
            self.wfile.flush()
            time.sleep(state.turn(state.stall, request))
            if cut is None:
                self.wfile.write(body[half:])

        def finish(self):
            with suppress(OSError):
                super().finish()

        def handle(self):
            with suppress(OSError):  # the client has gone
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/file"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
