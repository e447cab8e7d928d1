"""A server of ranges that misbehaves as a test wants it to.

    with RangeServer(folder) as server:
        server.fault(status(503), first=3)      # its third request fails
        ... server.url("model.pt") ...
        server.requests                         # all that came

It serves the files of a folder as S3 and nginx do: ranges, also from the end; strong ETags made of
the content; If-Match. Each request gets its number, its faults and its answer under one lock, so
that request n sees what all before it have done. Which range comes as the n-th is the client's
matter: a test with several connections asserts only what does not depend on it.
"""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import json
import pathlib
import re
import socket
import ssl
import struct
import threading
import urllib.parse
from typing import Any, Callable, Dict, List, Optional

ALWAYS = 1 << 60  # times


@functools.lru_cache(maxsize=64)
def tag_of(content):
    """The strong ETag of this content."""
    return '"' + hashlib.sha256(content).hexdigest()[:32] + '"'


@dataclasses.dataclass
class Request:
    number: int  # from 1
    method: str
    path: str
    query: Dict[str, str]
    headers: Any
    status: int = 0  # of the answer

    @property
    def range(self) -> Optional[str]:
        return self.headers.get("Range")

    @property
    def span(self):
        """(first, last), one of them None in an open range; None without a range."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.range or "")
        return tuple(int(text) if text else None for text in found.groups()) if found else None

    def has(self, offset):
        """Whether the range that is asked for, counted from the start, has this byte."""
        first, last = self.span or (None, None)
        return first is not None and first <= offset and (last is None or offset <= last)


@dataclasses.dataclass
class Answer:
    status: int
    headers: Dict[str, str]
    body: bytes = b""
    first: int = 0  # the offset of the body in the file
    content: bytes = b""  # the whole file
    # What happens instead of the body's end, once `sent` bytes of it are out: close, reset, stall.
    end: Optional[str] = None
    sent: Optional[int] = None
    # Is called in place of all that, with write(bytes), whose failure says that the client has left.
    raw: Optional[Callable[[Callable[[bytes], None]], None]] = None


# Faults: each takes a request and the function that makes the right answer, and returns the answer.
Fault = Callable[[Request, Callable[[], Answer]], Answer]


def _ends(how, sent) -> Fault:
    def fault(_request, right):
        answer = right()
        answer.end = how
        answer.sent = len(answer.body) // 2 if sent is None else sent
        return answer
    return fault


def truncated(sent=None) -> Fault:
    """The connection is closed after half of the body, or after `sent` bytes of it."""
    return _ends("close", sent)


def reset(sent=None) -> Fault:
    return _ends("reset", sent)


def stalled(sent=None) -> Fault:
    """No more comes until release(), and nothing after it."""
    return _ends("stall", sent)


def whole() -> Fault:
    """As a server that ignores Range."""
    def fault(_request, right):
        answer = right()
        headers = {key: text for key, text in answer.headers.items() if key != "Content-Range"}
        return Answer(200, headers, answer.content)
    return fault


def content_range(first=0, last=0, size=0) -> Fault:
    """A Content-Range whose numbers are wrong by so much."""
    def fault(_request, right):
        answer = right()
        *span, total = map(int, re.findall(r"\d+", answer.headers["Content-Range"]))
        told = f"{span[0] + first}-{span[1] + last}" if span else "*"  # of none that it has
        answer.headers["Content-Range"] = f"bytes {told}/{total + size}"
        return answer
    return fault


def without_content_range() -> Fault:
    def fault(_request, right):
        answer = right()
        del answer.headers["Content-Range"]
        return answer
    return fault


def gzipped() -> Fault:
    def fault(_request, right):
        answer = right()
        answer.headers["Content-Encoding"] = "gzip"
        answer.body = gzip.compress(answer.body, mtime=0)
        return answer
    return fault


def multipart() -> Fault:
    def fault(_request, right):
        answer = right()
        part = answer.headers.pop("Content-Range")
        answer.headers["Content-Type"] = "multipart/byteranges; boundary=part"
        answer.body = (f"--part\r\nContent-Range: {part}\r\n\r\n".encode() + answer.body
                       + b"\r\n--part--\r\n")
        return answer
    return fault


def redirected(to, code=302) -> Fault:
    """`to` is a URL, or a function that makes one of the request."""
    def fault(request, _right):
        return Answer(code, {"Location": to(request) if callable(to) else to}, b"elsewhere")
    return fault


def status(code, **headers) -> Fault:
    """`headers` with _ for -: status(503, Retry_After="0")."""
    def fault(_request, _right):
        return Answer(code, {key.replace("_", "-"): text for key, text in headers.items()},
                      b"<Error>no</Error>")
    return fault


def flipped(offset) -> Fault:
    """A wrong byte at this offset of the file, where the answer has it."""
    def fault(_request, right):
        answer = right()
        at = offset - answer.first
        if answer.status in (200, 206) and 0 <= at < len(answer.body):
            body = bytearray(answer.body)
            body[at] ^= 0xFF
            answer.body = bytes(body)
        return answer
    return fault


def other_tag() -> Fault:
    """Another ETag, whatever the request insists on."""
    def fault(request, right):
        del request.headers["If-Match"]
        answer = right()
        answer.headers["ETag"] = '"another"'
        return answer
    return fault


def with_headers(**headers) -> Fault:
    """`headers` with _ for -; None for a field that is to be missing, a list for one that comes more
    than once, a function for what becomes of the right one."""
    def fault(request, right):
        if "ETag" in headers:
            del request.headers["If-Match"]
        answer = right()
        for key, text in headers.items():
            name = "ETag" if key == "ETag" else key.replace("_", "-")
            answer.headers[name] = text(answer.headers.get(name)) if callable(text) else text
        return answer
    return fault


def body(change) -> Fault:
    """A body that change(body) makes of the right one, of which the Content-Length is told."""
    def fault(_request, right):
        answer = right()
        answer.body = change(answer.body)
        return answer
    return fault


def raw(write_answer) -> Fault:
    """What write_answer(write, answer) writes in place of the right answer."""
    def fault(_request, right):
        answer = right()
        answer.raw = lambda write: write_answer(write, answer)
        return answer
    return fault


def head_of(answer, version="HTTP/1.1", **more) -> bytes:
    """The first lines of this answer, with no length unless `more` has one."""
    fields = {**answer.headers, **{key.replace("_", "-"): text for key, text in more.items()}}
    lines = [f"{version} {answer.status} OK", *(f"{key}: {text}" for key, text in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin1")


def after(action) -> Fault:
    """The right answer once `action()` has been run: an object is replaced, or deleted."""
    def fault(_request, right):
        action()
        return right()
    return fault


@dataclasses.dataclass
class _Planned:
    fault: Fault
    first: int
    times: int
    match: Callable[[Request], bool]
    seen: int = 0

    def hits(self, request):
        if not self.match(request):
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.times


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        answer = self.server.owner.answer(self.command, self.path, self.headers)
        try:
            self._send(answer)
        except OSError:  # the client has left
            self.close_connection = True

    do_HEAD = do_GET

    def _send(self, answer):
        if answer.raw is not None:
            self.close_connection = True
            answer.raw(self.wfile.write)
            return
        self.send_response(answer.status)
        for key, text in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            for value in [text] if isinstance(text, str) else text or ():  # None: no such field
                self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(answer.body[:answer.sent])
        if answer.end is None:
            return
        self.close_connection = True
        if answer.end == "stall":
            self.server.owner.wait_for_release()
        elif answer.end == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *_arguments):
        pass


class _HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_arguments):  # a client that was killed
        pass

    def shutdown_request(self, request):
        try:
            super().shutdown_request(request)
        except OSError:  # it was reset
            pass


class RangeServer:
    """Stops with close(), or as a context."""

    def __init__(self, folder, tags="strong", versions=False, certificate=None, listing=None):
        """`tags`: strong, weak, none, or the same for all. With `versions` each content has an id, and stays to be had
        by it. `certificate`: (file, key) for https. `listing` of folders: s3, or nginx's in JSON."""
        self.folder = pathlib.Path(folder)
        self.requests: List[Request] = []
        self._tags, self._versions, self._listing = tags, versions, listing
        self.keys_of_a_page = 1000
        self._planned: List[_Planned] = []
        self._contents: Dict[Any, bytes] = {}
        self._by_version: Dict[str, bytes] = {}
        self._changed = threading.Condition(threading.RLock())
        self._released = threading.Event()
        self._server = _HttpServer(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,),
                                        daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def close(self):
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self):
        return self._server.server_address[1]

    def url(self, name="", host="127.0.0.1"):
        return f"{self._scheme}://{host}:{self.port}/{urllib.parse.quote(name)}"

    def fault(self, fault, first=1, times=1, match=lambda request: True):
        """Of the requests that match and come from now on, `times` from the `first` on get it."""
        with self._changed:
            self._planned.append(_Planned(fault, first, times, match))

    def heal(self):
        """No more faults; what stalls is let go."""
        with self._changed:
            self._planned.clear()
            self.release()
            self._released = threading.Event()

    def release(self):
        self._released.set()

    def wait_for_release(self):
        self._released.wait()

    def wait(self, condition):
        """Returns once condition(self) is true, which is looked at after each request."""
        with self._changed:
            self._changed.wait_for(lambda: condition(self))

    def answer(self, method, target, headers):
        with self._changed:
            parts = urllib.parse.urlsplit(target)
            request = Request(len(self.requests) + 1, method, urllib.parse.unquote(parts.path),
                              dict(urllib.parse.parse_qsl(parts.query)), headers)
            self.requests.append(request)
            make = lambda: self._right(request)
            for planned in self._planned:
                if planned.hits(request):
                    make = self._with_fault(planned.fault, request, make)
            answer = make()
            request.status = answer.status
            self._changed.notify_all()
            return answer

    @staticmethod
    def _with_fault(fault, request, right):
        return lambda: fault(request, right)

    def _content(self, request):
        """The bytes of the file that is asked for; None if there are none."""
        if "versionId" in request.query:
            return self._by_version.get(request.query["versionId"])
        path = self.folder / request.path.lstrip("/")
        if ".." in path.parts or not path.is_file():
            return None
        status_of_file = path.stat()
        key = (path, status_of_file.st_ino, status_of_file.st_size, status_of_file.st_mtime_ns)
        if key not in self._contents:
            self._contents[key] = path.read_bytes()
        return self._contents[key]

    def _identity(self, content):
        """The headers that name this version."""
        tag = tag_of(content)
        headers = {"strong": {"ETag": tag}, "weak": {"ETag": "W/" + tag}, "none": {},
                   "same": {"ETag": '"v1"'}}[self._tags]
        if self._versions:
            version = tag.strip('"')
            self._by_version[version] = content
            headers = {**headers, "x-amz-version-id": version}
        return headers

    def _entries(self, folder):
        """The files and folders in it, in the order of S3."""
        return sorted(folder.iterdir(), key=lambda path: path.name.encode())

    def _autoindex(self, folder):
        entries = [{"name": path.name, "type": "directory" if path.is_dir() else "file",
                    "mtime": "Sun, 29 Nov 2026 09:00:00 GMT",
                    **({} if path.is_dir() else {"size": path.stat().st_size})}
                   for path in self._entries(folder)]
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(entries).encode())

    def _list_objects(self, bucket, query):
        """ListObjectsV2, with the delimiter and the encoding that are asked for."""
        assert query["delimiter"] == "/" and query["encoding-type"] == "url"
        prefix = query.get("prefix", "")
        folder = self.folder / bucket / prefix
        files = [path for path in self._entries(folder) if path.is_file()] if folder.is_dir() else []
        first = int(query.get("continuation-token", "0/").rstrip("/"))
        page, rest = files[first:first + self.keys_of_a_page], files[first + self.keys_of_a_page:]
        text = "".join(f"<Contents><Key>{urllib.parse.quote_plus(prefix + path.name, safe='/')}</Key>"
                       f"<ETag>{tag_of(path.read_bytes()).replace(chr(34), '&quot;')}</ETag>"
                       f"<Size>{path.stat().st_size}</Size></Contents>" for path in page)
        more = f"<NextContinuationToken>{first + len(page)}/</NextContinuationToken>" if rest else ""
        return Answer(200, {"Content-Type": "application/xml"},
                      ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/'
                       f'2006-03-01/"><EncodingType>url</EncodingType><IsTruncated>{str(bool(rest)).lower()}'
                       f"</IsTruncated>{more}{text}</ListBucketResult>").encode())

    def _right(self, request):
        folder = self.folder / request.path.lstrip("/")
        if self._listing == "s3" and request.query.get("list-type") == "2":
            return self._list_objects(request.path.strip("/"), request.query)
        if self._listing == "nginx" and request.path.endswith("/") and folder.is_dir():
            return self._autoindex(folder)
        content = self._content(request)
        if content is None:
            return Answer(404, {}, b"<Error>NoSuchKey</Error>")
        headers = {"Accept-Ranges": "bytes", **self._identity(content)}
        wanted = request.headers.get("If-Match")
        if wanted not in (None, "*", headers.get("ETag") if self._tags in ("strong", "same") else None):
            return Answer(412, {}, b"<Error>PreconditionFailed</Error>")
        if request.headers.get("If-None-Match") in ("*", headers.get("ETag", "")):
            return Answer(304, headers)
        if request.span is None:
            return Answer(200, headers, content, content=content)
        first, last = request.span
        if first is None:  # the last bytes
            first, last = max(0, len(content) - last), None
        if first >= len(content):
            return Answer(416, {"Content-Range": f"bytes */{len(content)}"})
        last = len(content) - 1 if last is None else min(last, len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return Answer(206, headers, content[first:last + 1], first, content)
