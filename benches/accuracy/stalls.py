"""The ways in which a service can keep its callers, and the server that plays them."""

import asyncio
import gzip
import pathlib
import socket
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

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
UNWANTED = b"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n"
# What is small on the wire and much to decode, and to make objects of.
NUMBERS = b'{"f":{"key":"on","payload":[%s1]}}' % (b"1," * 1_000_000)
VARIANTS = b"{%s}" % b",".join(b'"f%d":{"key":"on","value":"on"}' % i for i in range(50_000))
# The record that a TLS server answers with, as long as one may be.
TLS_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"


def packed(body):
    """Steps: an answer with that body, packed."""
    body = gzip.compress(body)
    return once(b"%sContent-Length: %d\r\n\r\n%s" % (PACKED[:-2], len(body), body))


def once(data=b"", after=0.0):
    """Steps: what is sent, each after so many seconds."""
    return lambda: [(after, data)]


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
    # A TLS server whose certificate nobody trusts, beside so many of its issuer's name.
    issuers: int = 0
    # Nobody accepts connections.
    backlog: bool = False
    # A connection answers once; the next request on it ends it, and is held where it is repeated.
    kept: bool = False
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
    Kind("503 with Retry-After", once(BUSY), then="next", holds=False),
    Kind("reset after the first byte", once(GOOD[:1]), then="reset", holds=False),
    Kind("503, then chunks for ever", endless(b"1\r\n \r\n" * 2000, UNWANTED), holds=False),
    Kind("answer, then noise for ever", endless(b"x" * 0x4000, GOOD), holds=False),
    Kind("a value of a million numbers", packed(NUMBERS), then="next", holds=False),
    Kind("50 000 variants", packed(VARIANTS), then="next", holds=False),
    Kind("TLS: 60 issuers of one name", issuers=60, holds=False),
]


def untrusted(issuers):
    """Speaks TLS with a certificate that is signed by one of so many, all of one name."""
    with tempfile.TemporaryDirectory() as folder:
        chain = pathlib.Path(folder, "chain.pem")

        def certificate(name, *options):
            file = pathlib.Path(folder, name)
            key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
            words = ["openssl", "req", "-x509", *key, "-keyout", f"{file}.key", "-out", file]
            subprocess.run([*words, *options], check=True, capture_output=True)
            return file.read_bytes()

        others = [certificate(f"{i}", "-subj", "/CN=issuer") for i in range(issuers)]
        by_the_last = ["-CA", f"{folder}/{issuers - 1}", "-CAkey", f"{folder}/{issuers - 1}.key"]
        name = ["-subj", "/CN=service", "-addext", "subjectAltName=IP:127.0.0.1"]
        chain.write_bytes(b"".join([certificate("service", *name, *by_the_last), *others]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, f"{folder}/service.key")
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

    async def __aenter__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        context = None
        if self.kind.issuers:
            context = untrusted(self.kind.issuers)
            context.sni_callback = self.greeted
        self.server = await asyncio.start_server(
            self.serve, sock=self.socket, backlog=1024, ssl=context
        )
        scheme = "https" if self.kind.secure or context else "http"
        self.url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for one in self.filling:
            one.close()

    def greeted(self, *_):
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
        try:
            while await self.exchange(reader, writer, answered):
                answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has left
        finally:
            writer.transport.abort()

    async def exchange(self, reader, writer, answered):
        """Plays what is due, and says whether another request may come."""
        if self.kind.secure:
            return self.bad and await self.play(reader, writer)
        await Upstream.read_request(reader)
        if self.bad and self.kind.kept and answered:
            self.lost += 1
            return False
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
