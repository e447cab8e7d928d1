"""Answers a request with the model, for the examples that use Python's own HTTP server."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    timeout = 5  # seconds for a client to send its request

    def do_GET(self) -> None:
        import model  # a program that serves has done so before it forks or is dumped

        status, body = model.answer(self.path.partition("?")[2])
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Disables the log of requests."""
