"""What ten thousand fetches leave behind."""

from __future__ import annotations

from conftest import Play
from service import run_python


def test_ten_thousand_fetches_leave_nothing(play: Play) -> None:
    program = """
        import asyncio, gc, os, sys, threading
        from libexperiment import *

        config = RemoteEvaluationConfig(server_url=sys.argv[1])
        client = RemoteEvaluationClient("key", config)
        a_client = AsyncRemoteEvaluationClient("key", config)
        user = User(user_id="u")

        def kilobytes():
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        async def awaited(count):
            for _ in range(count // 10):
                await asyncio.gather(*(a_client.fetch_v2(user) for _ in range(10)))

        def fetch(count):
            told = threading.Semaphore(0)
            for _ in range(count // 4):
                client.fetch_v2(user, FetchOptions(flagKeys=["demo-nonce"], cancel=Cancel()))
                client.fetch_v2_or_raise(user)
                client.fetch_async_v2(user, lambda *_: told.release())
                told.acquire()
            asyncio.run(awaited(count // 4))

        fetch(2000)
        before, open_before = kilobytes(), descriptors()
        fetch(10_000)
        print(kilobytes() - before, descriptors() - open_before)
    """
    grown, opened = map(int, run_python(program, play({"keep": "nothing"}).url, seconds=60).split())
    # One lost set of variants for each fetch would be 10 MB; the allocator's own noise is below 1.
    assert grown < 2000
    # Two pools of eight connections may fill up meanwhile, of two descriptors each.
    assert opened <= 32


def test_what_fails_leaves_nothing_either(play: Play) -> None:
    program = """
        import gc, logging, os, sys
        from contextlib import suppress
        from libexperiment import *
        from libexperiment._fetch import fetch
        from libexperiment.errors import error_of
        from libexperiment.variant import at_once, by_flag

        config = RemoteEvaluationConfig(server_url=sys.argv[1], fetch_retries=0)
        config.logger = logging.Logger("nobody reads it", logging.CRITICAL + 1)
        native = RemoteEvaluationClient("key", config)
        client = native._owned.native

        def made(native):
            return at_once(by_flag, native)

        def fails(native):
            raise ValueError(native)

        def each(count):
            for _ in range(count):
                with suppress(FetchError):
                    fetch(client, b"no object", None, made, error_of)
                for read in (made, fails):  # of which every second fetch fails anyway
                    with suppress(FetchError, ValueError):
                        fetch(client, b"{}", None, read, fails)
                with suppress(FetchError, ValueError):
                    fetch(client, None, None, fails, error_of)

        def kilobytes():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

        each(500)
        gc.collect()
        before, blocks = kilobytes(), sys.getallocatedblocks()
        each(5000)
        gc.collect()
        print(sys.getallocatedblocks() - blocks, kilobytes() - before)
    """
    service = play({"answers": [{}, {"status": 503}] * 10_000, "keep": "nothing"})
    blocks, grown = map(int, run_python(program, service.url, seconds=60).split())
    assert blocks < 100
    assert grown < 1000  # a lost error for each would be more


def test_a_thousand_clients_leave_nothing(play: Play) -> None:
    program = """
        import gc, logging, os, sys
        from libexperiment import *
        from libexperiment import _logs
        from service import Lines

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        def live(count):
            for _ in range(count):
                logger = logging.Logger("l", logging.DEBUG)
                config = RemoteEvaluationConfig(server_url=sys.argv[1], logger=logger)
                RemoteEvaluationClient("key", config).fetch_v2(User(user_id="u"))

        live(10)
        before = descriptors()
        live(1000)
        _logs.flush()
        print(descriptors() - before, len(_logs.loggers))
    """
    assert run_python(program, play({"keep": "nothing"}).url) == "0 0\n"
