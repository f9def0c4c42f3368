"""A service that answers well, turns bad for a while, and recovers."""

import asyncio
import json
import time

import names

BODY = json.dumps({
    "new-checkout": {"key": "on", "value": "on", "payload": {"color": "blue", "limit": 25},
                     "metadata": {"deployed": True, "flagType": "experiment", "flagVersion": 12}},
    "dark-mode": {"key": "off", "metadata": {"default": True, "deployed": True}},
}, separators=(",", ":")).encode()  # fmt: skip
ANSWER_SECONDS = 0.005
DRIP_SECONDS = 0.1

# What "bad" can be. What a recovered service does with what it held is part of it:
#   stall     it reads requests and answers none; at recovery those whose caller still waits
#   drip      head at once, then a byte each 100 ms; at recovery the rest at once
#   503       it answers 503, as fast as it did
#   refused   it ends all connections, and nobody listens
#   resolver  it ends all connections, and who asks for its name is answered at recovery
KINDS = ("stall", "drip", "503", "refused", "resolver")


def response(status, body):
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


GOOD = response("200 OK", BODY)
UNAVAILABLE = response("503 Service Unavailable", b"try later")


class Upstream:
    """Listens on one port of the loopback; `arrivals` are the times at which requests came."""

    def __init__(self):
        self.port = 0
        self.bad = None
        self.recovered = asyncio.Event()
        self.open = set()
        self.names = names.NameServer()
        self.forget()

    def forget(self):
        self.arrivals = []
        self.most_open = len(self.open)

    async def listen(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, backlog=4096)
        self.port = self.server.sockets[0].getsockname()[1]

    async def turn_bad(self, kind):
        self.recovered.clear()
        self.bad = kind
        self.names.hangs = kind == "resolver"
        if kind == "refused":
            self.server.close()
        if kind in ("refused", "resolver"):
            for writer in self.open:
                writer.transport.abort()

    async def recover(self):
        if self.bad == "refused":
            await self.listen()
        self.bad = None
        self.names.recover()
        self.recovered.set()

    async def serve(self, reader, writer):
        self.open.add(writer)
        self.most_open = max(self.most_open, len(self.open))
        try:
            while True:
                await self.read_request(reader)
                self.arrivals.append(time.time())
                await asyncio.sleep(ANSWER_SECONDS)
                await self.answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    @staticmethod
    async def read_request(reader):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length:" in head:
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        return head

    async def answer(self, reader, writer):
        if self.bad == "503":
            writer.write(UNAVAILABLE)
        elif self.bad == "stall":
            await self.recovery(reader, None)
            writer.write(GOOD)
        elif self.bad == "drip":
            sent = len(GOOD) - len(BODY)
            writer.write(GOOD[:sent])
            while sent < len(GOOD) and not await self.recovery(reader, DRIP_SECONDS):
                writer.write(GOOD[sent : sent + 1])
                sent += 1
            writer.write(GOOD[sent:])
        else:
            writer.write(GOOD)

    async def recovery(self, reader, seconds):
        """Waits for it, at most so long, and says whether it has come."""
        gone = asyncio.ensure_future(reader.read(1))
        well = asyncio.ensure_future(self.recovered.wait())
        try:
            await asyncio.wait({gone, well}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ConnectionResetError  # the caller has left
            return well.done()
        finally:
            gone.cancel()
            well.cancel()
            await asyncio.gather(gone, well, return_exceptions=True)
