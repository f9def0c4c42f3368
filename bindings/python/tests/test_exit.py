"""The interpreter ends, whatever fetches are in the middle of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from conftest import HELD, Play
from service import run_python

EVERYTHING_IN_FLIGHT = """
    import asyncio, logging, sys, threading, time
    from libexperiment import *

    class Nothing(logging.Handler):
        def emit(self, record):
            record.getMessage()

    answering, held = sys.argv[1:]
    logger = logging.Logger("debug", logging.DEBUG)
    logger.addHandler(Nothing())
    told = []

    def new(kind, url):
        return kind("key", RemoteEvaluationConfig(server_url=url, logger=logger))

    def called_back():
        client = new(RemoteEvaluationClient, answering)
        for i in range(50):
            client.fetch_async_v2(User(user_id=str(i)), lambda *outcome: told.append(outcome))

    def blocked():
        client = new(RemoteEvaluationClient, held)
        while True:
            client.fetch_v2(User(user_id="u"))

    async def awaited():
        client = new(AsyncRemoteEvaluationClient, held)
        await asyncio.gather(*(client.fetch_v2(User(user_id="u")) for _ in range(50)))

    called_back()
    for target in (blocked, blocked, lambda: asyncio.run(awaited())):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.01)
"""


def test_exit_is_clean_with_fetches_of_every_kind_in_flight(play: Play) -> None:
    answering = play({"answers": [{"delay_millis": 20, "json": {}}], "keep": "nothing"})
    held = play({**HELD, "keep": "nothing"})
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(run_python, EVERYTHING_IN_FLIGHT, answering.url, held.url)
            for _ in range(50)
        ]
        for run in runs:
            run.result()


HOLDING_LOCKS = """
    import atexit, logging, sys, threading, time
    from libexperiment import *

    lock, fetching = threading.Lock(), threading.Semaphore(0)

    class Fetches(logging.Handler):
        def emit(self, record):
            fetching.release()
            client.fetch_v2(User(user_id="u"))

    def locked():
        while True:
            with lock:
                fetching.release()
                client.fetch_v2(User(user_id="u"))

    def logged():
        while True:
            logger.info("a line")

    def at_exit():
        with lock:
            print("locked")
        late = threading.Thread(target=lambda: client.fetch_v2(User(user_id="u")))
        late.start()
        late.join()
        print("joined")

    # Handlers that were registered before run later than ours, as does that of logging.
    from libexperiment import _exit
    atexit.unregister(_exit._at_exit)
    atexit.register(at_exit)
    atexit.register(_exit._at_exit)

    quiet = logging.Logger("nobody reads it", logging.CRITICAL + 1)
    config = RemoteEvaluationConfig(server_url=sys.argv[1], logger=quiet)
    client = RemoteEvaluationClient("key", config)
    logger = logging.Logger("fetches", logging.INFO)
    logger.addHandler(Fetches())
    for target in (locked, logged):
        threading.Thread(target=target, daemon=True).start()
    for _ in range(2):
        fetching.acquire()
"""


def test_what_others_do_at_exit_gets_the_locks_of_daemons_that_fetch(play: Play) -> None:
    service = play({**HELD, "keep": "nothing"})
    assert run_python(HOLDING_LOCKS, service.url) == "locked\njoined\n"


def test_a_signal_as_exit_begins_leaves_nobody_in_the_library(play: Play) -> None:
    program = """
        import atexit, signal, sys, threading, time
        from libexperiment import *
        from libexperiment import _exit

        def first(frame, event, _):
            if event == "call" and frame.f_code is _exit._at_exit.__code__:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

        client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))
        for _ in range(4):
            threading.Thread(target=client.fetch_v2, args=(None,), daemon=True).start()
        while len(_exit.inside) < 4:
            time.sleep(0.001)
        sys.stderr = None  # where the interrupt is told of
        atexit.register(sys.setprofile, first)
        print("end", flush=True)
    """
    assert run_python(program, play({**HELD, "keep": "nothing"}).url) == "end\n"


def test_exit_waits_for_the_callbacks_that_are_due(play: Play) -> None:
    service = play({"answers": [{"delay_millis": 200}]})
    program = """
        import sys
        from libexperiment import *

        client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))
        client.fetch_async_v2(User(user_id="u"), lambda user, variants: print(len(variants)))
        del client
    """
    assert run_python(program, service.url) == "4\n"


def test_a_callback_at_exit_cannot_fetch_for_ever(play: Play) -> None:
    program = """
        import logging, sys
        from libexperiment import *

        logging.getLogger("Amplitude").addHandler(logging.StreamHandler(sys.stdout))
        client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))

        def again(*outcome):
            client.fetch_async_v2(User(user_id="u"), again)

        again()
    """
    assert "ClientClosedError: the interpreter is exiting" in run_python(program, play({}).url)


def test_exit_waits_for_nobody_who_was_not_told_on_a_loop_that_is_gone(play: Play) -> None:
    program = """
        import asyncio, gc, logging, sys
        from libexperiment import *

        logging.getLogger("Amplitude").setLevel(logging.ERROR)
        gc.disable()

        def fetch(url):
            client = AsyncRemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=url))
            return asyncio.create_task(client.fetch_v2_or_raise(User(user_id="u")))

        async def main():
            failing, held = sys.argv[1:]
            # An error's traceback keeps what receives for the loop.
            await asyncio.gather(fetch(failing), return_exceptions=True)
            tasks = [fetch(held) for _ in range(20)]
            await asyncio.sleep(0)  # each comes as far as its submission
            for task in tasks:
                task.cancel()

        asyncio.run(main())
    """
    failing = play({"answers": [{"status": 400}]})
    # Less than exiting waits for at most.
    run_python(program, failing.url, play(HELD).url, seconds=4)
