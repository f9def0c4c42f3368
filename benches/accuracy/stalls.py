"""The ways in which a service can keep its callers, or give them much to do, and the server that plays
them."""

import asyncio
import functools
import gzip
import pathlib
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import programs
from upstream import BODY, GOOD, Upstream

TIMEOUT_SECONDS = 0.2
# When the server gives up: whoever still waits so long after its timeout has none.
CUT_SECONDS = 1.5

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LENGTH = OK + b"Content-Length: %d\r\n\r\n" % len(BODY)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PACKED = OK + b"Content-Encoding: gzip\r\n\r\n"
UNPACKED = OK + b"\r\n"
IN_ONE_CHUNK = CHUNKED + b"%x\r\n%s\r\n" % (len(BODY), BODY)
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
ELSEWHERE = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\n"
NO_MORE_CHUNKS = UNAVAILABLE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
ESCAPES = b'{"flag":{"key":"%s"}}' % (b"\\u00e9" * 50_000)
VARIANTS = b"{%s}" % b",".join(b'"flag-%d":{"key":"on","value":"on"}' % i for i in range(2_000))
# The record that a TLS server answers with, as long as one may be.
TLS_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"


def once(data=b"", after=0.0):
    """Steps: what is sent, each after so many seconds."""
    return lambda: [(after, data)]


def at_the_last_moment(body):
    """Steps: all but the last byte, and that so late that hardly any time is left to read it."""
    head = OK + b"Content-Length: %d\r\n\r\n" % len(body)
    return lambda: [(0, head + body[:-1]), (0.8 * TIMEOUT_SECONDS, body[-1:])]


def drip(data, before=b""):
    """A byte each 50 ms: what counts only silence never notices."""

    def steps():
        yield 0, before
        for at in range(len(data)):
            yield 0.05, data[at : at + 1]

    return steps


def endless(piece, before=b"", every=0.02):
    def steps():
        yield 0, before
        while True:
            yield every, piece

    return steps


@dataclass
class Kind:
    name: str
    steps: Callable = once()
    # After the steps the server holds the connection, resets it, or reads the next request.
    then: str = "hold"
    # The client speaks TLS, and the server none.
    secure: bool = False
    # Nobody accepts connections.
    backlog: bool = False
    # A connection answers once; the next request on it ends it, and is held where it is repeated.
    kept: bool = False
    # So long after an answer the steps follow it over the same connection, which then is unused.
    idle: float = 0
    # A TLS server shows so many certificates of one name, none of which leads to another.
    certificates: int = 0
    # Every caller is to be kept until its timeout.
    holds: bool = True


KINDS = [
    Kind("connect is not answered", backlog=True),
    Kind("TLS: silence", secure=True),
    Kind("TLS: a record drips", drip(TLS_RECORD + bytes(500)), secure=True),
    Kind("silence"),
    Kind("kept connection ends, then silence", kept=True, holds=False),
    Kind("answer at the timeout", once(GOOD, after=TIMEOUT_SECONDS), then="next"),
    Kind("answer at twice the timeout", once(GOOD, after=2 * TIMEOUT_SECONDS), then="next"),
    Kind("head drips", drip(GOOD)),
    Kind("head does not end", endless(b"X-More: more\r\n", OK)),
    Kind("103 for ever", endless(EARLY_HINTS)),
    Kind("100 for ever", endless(b"HTTP/1.1 100 Continue\r\n\r\n")),
    Kind("redirects to itself", once(ELSEWHERE, after=0.05), then="next", holds=False),
    Kind("head, then silence", once(LENGTH)),
    Kind("half the body, then silence", once(LENGTH + BODY[: len(BODY) // 2])),
    Kind("all but the last byte", once(LENGTH + BODY[:-1])),
    Kind("body without length or end", once(UNPACKED + BODY)),
    Kind("body drips", drip(BODY, LENGTH)),
    Kind("body floods", endless(b" " * 0x4000, UNPACKED)),
    Kind("chunks drip", drip(b"1\r\n \r\n" * 100, CHUNKED)),
    Kind("chunks for ever", endless(b"1\r\n \r\n", CHUNKED)),
    Kind("chunk size does not end", drip(b"1;" + b"x" * 500, CHUNKED)),
    Kind("last chunk does not come", once(IN_ONE_CHUNK)),
    Kind("trailers do not end", endless(b"X-More: more\r\n", IN_ONE_CHUNK + b"0\r\n")),
    Kind("gzip drips", drip(gzip.compress(BODY), PACKED)),
    Kind("gzip of nothing, for ever", endless(gzip.compress(b""), PACKED)),
    Kind("503, body does not end", endless(b"x" * 0x4000, UNAVAILABLE + b"\r\n", 0), holds=False),
    Kind("503, trailers do not end", endless(b"X: x\r\n" * 2000, NO_MORE_CHUNKS, 0), holds=False),
    Kind("unused connection floods", endless(b"x" * 0x4000, every=0), idle=0.002, holds=False),
    Kind("TLS: 150 certificates of one name", certificates=150, holds=False),
    Kind("one text of escapes, late", at_the_last_moment(ESCAPES), then="next", holds=False),
    Kind("2 000 variants, late", at_the_last_moment(VARIANTS), then="next", holds=False),
    Kind("503 with Retry-After", once(BUSY), then="next", holds=False),
    Kind("reset after the first byte", once(GOOD[:1]), then="reset", holds=False),
]


@functools.cache
def showing(count):
    """What a server shows: a certificate, and so many that may have issued it, by their name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        key, issuer, own_key = folder / "key.pem", folder / "issuer.pem", folder / "own-key.pem"
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
               "-subj", "/CN=one name"]  # fmt: skip
        programs.capture(*new, "-keyout", key, "-out", issuer)
        certificates = [folder / f"{number}.pem" for number in range(1 + count)]
        for one in reversed(certificates):
            programs.capture(*new, "-CA", issuer, "-CAkey", key, "-keyout", own_key, "-out", one)
        shown = folder / "shown.pem"
        shown.write_text("".join(one.read_text() for one in certificates))
        context.load_cert_chain(shown, own_key)
    return context


class Stalling:
    """Answers well, so that a client can warm up, and then as its kind says. For one client."""

    def __init__(self, kind):
        self.kind = kind
        self.bad = False
        # How many requests were lost with a kept connection, and will come again.
        self.lost = 0
        # How many requests, or connections of TLS, were answered as the kind says.
        self.played = 0
        self.filling = []
        self.serving = set()

    async def __aenter__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.server = await asyncio.start_server(
            self.serve, sock=self.socket, backlog=1024, ssl=self.tls()
        )
        scheme = "https" if self.kind.secure or self.kind.certificates else "http"
        self.url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        if self.serving:
            await asyncio.wait(self.serving, timeout=TIMEOUT_SECONDS + CUT_SECONDS)
        for one in self.filling:
            one.close()

    def tls(self):
        if not self.kind.certificates:
            return None
        context = showing(self.kind.certificates)
        context.sni_callback = self.greeted
        return context

    def greeted(self, *_):
        """A handshake has begun; whoever looks at the certificates ends it."""
        self.played += self.bad

    def turn_bad(self):
        self.bad = True
        if self.kind.backlog:
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
            self.socket.listen(0)
            self.fill()

    def fill(self):
        """Connects until nothing is answered any more: with a backlog of 0 the kernel takes one."""
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(self.socket.getsockname())
            self.filling.append(one)

    async def serve(self, reader, writer):
        answered = 0
        self.serving.add(asyncio.current_task())
        try:
            while await self.exchange(reader, writer, answered):
                answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has left
        finally:
            writer.transport.abort()
            self.serving.discard(asyncio.current_task())

    async def exchange(self, reader, writer, answered):
        """Plays what is due, and says whether another request may come."""
        if self.kind.secure:
            return self.bad and await self.play(reader, writer)
        await Upstream.read_request(reader)
        if self.bad and self.kind.kept and answered:
            self.lost += 1
            return False
        if self.bad and self.kind.idle:
            writer.write(GOOD)
            await asyncio.sleep(self.kind.idle)
            return await self.play(reader, writer)
        if self.bad and (not self.kind.kept or self.lost):
            self.lost -= self.kind.kept
            return await self.play(reader, writer)
        writer.write(GOOD)
        return True

    async def play(self, reader, writer):
        self.played += 1
        if self.kind.then == "next":
            await self.send(writer)
            return True
        under_way = [asyncio.ensure_future(it) for it in (self.send(writer), reader.read())]
        await asyncio.wait(
            under_way, timeout=TIMEOUT_SECONDS + CUT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self.kind.then == "reset":
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        return False

    async def send(self, writer):
        for seconds, data in self.kind.steps():
            await asyncio.sleep(seconds)
            writer.write(data)
            await writer.drain()
        if self.kind.then == "hold":
            await asyncio.Event().wait()
