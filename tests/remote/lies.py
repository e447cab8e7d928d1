"""What a server of ranges can say that is not so, and what everybody who asks it has to make of it.

Each lie is told from the first answer on, and, in another run, after two honest ones. What has to
follow is RIGHT (the file, whole and right: it is no lie that matters) or a pattern of the sentence
with which it is refused.
"""

import dataclasses
import itertools
import time
from typing import Optional

from range_server import (
    Fault, body, content_range, gzipped, head_of, multipart, other_tag, raw, redirected, status,
    truncated, whole, with_headers, without_content_range)

RIGHT = "right"
LONG = "has a header of more than 256 KiB"
CHANGED = "changed: the file was version"
ENDED = "(the body ended early|Transferred a partial file)"
LOST = r"; \d requests for one range failed"


@dataclasses.dataclass
class Lie:
    name: str
    fault: Fault
    first: str
    later: Optional[str] = None  # as the first, unless given
    comes_whole: bool = False  # by a request without a range, by which fetch may copy a single file

    def __post_init__(self):
        self.later = self.later or self.first

    def follows(self, honest):
        return self.later if honest else self.first


def endless(write, first, again):
    write(first)
    while True:
        write(again)


def drip(write, answer):
    """A byte now and then, without end as far as a client's patience goes."""
    write(head_of(answer, Content_Length=len(answer.body)))
    for at in range(len(answer.body)):
        write(answer.body[at:at + 1])
        time.sleep(0.01)


def chunks(parts, trailer=b""):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailer + b"\r\n"


def chunked(write, answer, trailer=b""):
    half = len(answer.body) // 2
    parts = [part for part in (answer.body[:half], answer.body[half:]) if part]
    write(head_of(answer, Transfer_Encoding="chunked", Connection="close") + chunks(parts, trailer))


def bad_chunks(write, answer):
    write(head_of(answer, Transfer_Encoding="chunked", Connection="close") + b"no number\r\n")


def old(write, answer):
    write(head_of(answer, version="HTTP/1.0") + answer.body)


def more_than_asked(write, answer):
    write(head_of(answer, Connection="close") + answer.body + b"more")


def less_than_asked(write, answer):
    write(head_of(answer, Connection="close") + answer.body[:-1])


_tags = itertools.count()

LIES = [
    # The status.
    Lie("whole_file_for_a_range", whole(), "the server ignores ranges", comes_whole=True),
    Lie("part_as_whole", lambda request, right: dataclasses.replace(right(), status=200),
        "the server ignores ranges", comes_whole=True),
    Lie("page_to_log_in", lambda request, right: dataclasses.replace(
        whole()(request, right), headers={"Content-Type": "text/html"}, body=b"<html>"),
        "a page of HTML|a web page"),
    Lie("nothing", status(204), "the server answers HTTP 204"),
    Lie("not_modified", status(304), "the server answers HTTP 304"),
    Lie("precondition_failed", status(412), "the server answers HTTP 412", CHANGED),
    Lie("no_such_range", status(416), "the server has no range|the server answers HTTP 416"),
    Lie("unknown_status", status(799), "HTTP 799"),
    Lie("gone", status(410), "no such file", CHANGED + ".*and is gone"),
    Lie("missing", status(404), "no such file", CHANGED + ".*and is gone"),
    Lie("forbidden", status(403), "refuses access"),
    Lie("busy", status(503), "HTTP 503" + LOST),
    # The range.
    Lie("range_shifted", content_range(first=1, last=1), "with Content-Range|not one range"),
    Lie("range_longer", content_range(last=1), "Content-Length is|not one range"),
    Lie("range_of_another_size", content_range(size=1), "with Content-Range|behind it", CHANGED),
    Lie("range_of_2_to_the_63", content_range(size=1 << 63), "with Content-Range|too large|bytes",
        CHANGED),
    Lie("range_beyond_64_bits", content_range(size=1 << 64), "not one range of a known size"),
    Lie("range_without_size", with_headers(Content_Range=lambda text: text.split("/")[0] + "/*"),
        "not one range of a known size"),
    Lie("range_of_items", with_headers(Content_Range=lambda text: text.replace("bytes", "items")),
        "not one range of a known size"),
    Lie("range_twice", with_headers(Content_Range=lambda text: [text, text]),
        "not one range of a known size"),
    Lie("no_range", without_content_range(), "Content-Range is none"),
    Lie("several_ranges", multipart(), "Content-Range is none"),
    # The version.
    Lie("another_tag", other_tag(), RIGHT, CHANGED),
    Lie("each_time_another_tag",
        with_headers(ETag=lambda text: f'"{next(_tags)}"', Last_Modified=None), "changed", CHANGED),
    Lie("no_tag", with_headers(ETag=None), "names no version of the file", CHANGED),
    Lie("weak_tag", with_headers(ETag=lambda text: "W/" + text), RIGHT, CHANGED),
    Lie("two_tags", with_headers(ETag=lambda text: [text, '"second"']), RIGHT, CHANGED),
    Lie("tag_that_is_a_path", with_headers(ETag='"../../x"'), RIGHT, CHANGED),
    Lie("tag_that_is_long", with_headers(ETag='"' + "x" * 20_000 + '"'), RIGHT, CHANGED),
    Lie("tag_that_is_not_printable", with_headers(ETag='"\x01\xff\x7f"'), RIGHT, CHANGED),
    # The body.
    Lie("gzip", gzipped(), "Content-Encoding gzip"),
    Lie("short_body", truncated(), ENDED + LOST),
    Lie("short_body_that_says_so", body(lambda content: content[:-1]), "Content-Length is"),
    Lie("short_body_without_length", raw(less_than_asked), ENDED + LOST),
    Lie("empty_body", body(lambda content: b""), "Content-Length is"),
    Lie("long_body_that_says_so", body(lambda content: content + b"more"), "Content-Length is"),
    Lie("long_body_without_length", raw(more_than_asked), "more bytes than were asked for"),
    Lie("chunked", raw(chunked), RIGHT),
    Lie("chunked_with_trailer",
        raw(lambda write, answer: chunked(write, answer, b'ETag: "trailer"\r\n')), RIGHT),
    Lie("chunks_without_a_length", raw(bad_chunks), LOST),
    Lie("http_1_0", raw(old), RIGHT),
    # The head.
    Lie("no_http", raw(lambda write, answer: write(b"SSH-2.0-OpenSSH\r\n" + answer.body)), "Unsupported protocol|no answer of HTTP"),
    Lie("endless_headers",
        raw(lambda write, answer: endless(write, b"HTTP/1.1 206 OK\r\n", b"X-More: more\r\n" * 999)),
        LONG),
    Lie("endless_header",
        raw(lambda write, answer: endless(write, b"HTTP/1.1 206 OK\r\nX-More: ", b"more" * 999)),
        LONG),
    Lie("endless_interim_answers",
        raw(lambda write, answer: endless(write, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 999)),
        LONG),
    # Redirects.
    Lie("redirect_to_nowhere", status(302), "redirects without a location"),
    Lie("redirect_to_a_file", redirected("file:///etc/passwd"), "redirects away from http"),
    Lie("redirect_to_another_protocol", redirected("ftp://127.0.0.1/model.pt"), "redirects away from http"),
    Lie("redirect_to_itself", redirected(lambda request: request.path),
        "redirects more than 5 times"),
]
