"""A store on loopback that serves one file by ranges, and a client of it for weightmap.ray."""

from __future__ import annotations

import hashlib
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import weightmap


class RangeStore(ThreadingHTTPServer):
    """Serves `content` under its ETag, and counts the bytes of bodies.

    before: is called with the number of the ranged request, from 1, before it is answered; in a
        thread of the request.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, content=b""):
        super().__init__(("127.0.0.1", 0), _Handler)
        self._lock = threading.Lock()
        self.content = content
        self.sent = 0
        self.ranges = 0
        self.before = lambda number: None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/folder/model.pt?signature=secret"

    @property
    def content(self):
        return self.file[0]

    @content.setter
    def content(self, content):
        self.file = content, '"' + hashlib.sha256(content).hexdigest()[:16] + '"'

    @property
    def tag(self):
        return self.file[1]

    def begin_range(self):
        with self._lock:
            self.ranges += 1
            number = self.ranges
        self.before(number)

    def count(self, length):
        with self._lock:
            self.sent += length


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        content, tag = self.server.file
        self._head(404 if "missing" in self.path else 200, tag, len(content))

    def do_GET(self):
        self.server.begin_range()
        content, tag = self.server.file
        if self.headers.get("If-Match", tag) != tag:
            self._head(412, tag, 0)
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        begin = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        body = content[begin:end]
        place = f"bytes {begin}-{end - 1}/{len(content)}"
        self._head(206, tag, len(body), ("Content-Range", place))
        self.server.count(len(body))
        self.wfile.write(body)

    def _head(self, status, tag, length, *more):
        self.send_response(status)
        for name, value in (("ETag", tag), ("Content-Length", str(length)), *more):
            self.send_header(name, value)
        self.end_headers()


class RangeClient:
    """A source as weightmap.remote.open_url() makes it."""

    def __init__(self, url):
        self.name = url.partition("?")[0]
        self._url = url
        with self._ask("HEAD", {}) as answer:
            self.size = int(answer.headers["Content-Length"])
            self.tag = answer.headers["ETag"]

    def _ask(self, method, headers):
        return urllib.request.urlopen(
            urllib.request.Request(self._url, method=method, headers=headers)
        )

    def read_into(self, offset, buffer):
        last = offset + len(buffer) - 1
        wanted = {"Range": f"bytes={offset}-{last}", "If-Match": self.tag}
        try:
            with self._ask("GET", wanted) as answer:
                buffer[:] = answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 412:
                raise
            raise weightmap.FileError("changed: the store has another version") from None


open_source = RangeClient
