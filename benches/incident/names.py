"""A name server that may hang, and the way to make one program ask it."""

import asyncio
import os
import sys

ADDRESS = "127.53.53.53"  # all of 127/8 is the loopback; resolv.conf can name no port but 53
HOST = "service.test"
# In a mount namespace of its own the program finds another resolv.conf.
ASK_IT = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


def asking(command, folder):
    """The command, as a program that asks this name server and no other. Needs root."""
    if os.geteuid() != 0:
        sys.exit("`resolver` needs root: it binds port 53 of the loopback, and mounts")
    config = folder / "resolv.conf"
    config.write_text(f"nameserver {ADDRESS}\n")
    return ["unshare", "--mount", "sh", "-c", ASK_IT, config, *command]


class NameServer(asyncio.DatagramProtocol):
    """Says of every name that it is this machine. Asked while it hangs, it answers later."""

    def __init__(self):
        self.hangs = False
        self.held = []

    async def listen(self):
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, (ADDRESS, 53))

    def recover(self):
        self.hangs = False
        for question, sender in self.held:
            self.datagram_received(question, sender)
        self.held = []

    def datagram_received(self, question, sender):
        if self.hangs:
            self.held.append((question, sender))
        else:
            self.transport.sendto(answer(question), sender)


def answer(question):
    """127.0.0.1 to who asks for an IPv4 address, else nothing; not to be remembered."""
    name_ends = question.index(b"\0", 12)
    asked = question[12 : name_ends + 5]
    wants_ipv4 = asked[-4:] == b"\0\1\0\1"
    answers = b"\0\1" if wants_ipv4 else b"\0\0"
    head = question[:2] + b"\x81\x80" + b"\0\1" + answers + b"\0\0\0\0"
    record = b"\xc0\x0c\0\1\0\1" + b"\0\0\0\0" + b"\0\4" + b"\x7f\0\0\1"
    return head + asked + (record if wants_ipv4 else b"")
