"""Processes that are forked from one that has fetched."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from conftest import Play
from service import run_python

FORKED = """
    import asyncio, logging, multiprocessing, os, signal, sys, threading, time
    from libexperiment import *

    config = RemoteEvaluationConfig(server_url=sys.argv[1], fetch_timeout_millis=5000)
    client = RemoteEvaluationClient("key", config)
    a_client = AsyncRemoteEvaluationClient("key", config)

    def user(nonce):
        return User(user_id="u", user_properties={"nonce": nonce})

    def check(nonces):
        for nonce in nonces:
            assert client.fetch_v2_or_raise(user(nonce))["demo-nonce"].payload == nonce
        told = []
        done = threading.Event()

        def callback(user, variants):
            told.append(user.user_properties["nonce"] == variants["demo-nonce"].payload)
            if len(told) == len(nonces):
                done.set()

        for nonce in nonces:
            client.fetch_async_v2(user(nonce), callback)

        async def main():
            fetches = [a_client.fetch_v2_or_raise(user(nonce)) for nonce in nonces]
            for nonce, answer in zip(nonces, await asyncio.gather(*fetches)):
                assert answer["demo-nonce"].payload == nonce

        asyncio.run(main())
        assert done.wait(10) and all(told)

    def nonces(name, count=200):
        return [f"{name}-{i}" for i in range(count)]
"""


def test_no_answer_is_crossed_between_parent_and_child(play: Play) -> None:
    program = """
    check(nonces("before", 20))
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            check(nonces(os.getpid()))
            sys.exit(0)
        children.append(child)
    check(nonces("parent"))
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    print("ok")
    """
    assert run_python(FORKED + program, play({"keep": "nothing"}).url, seconds=60) == "ok\n"


def test_a_child_may_be_forked_in_the_middle_of_fetches(play: Play) -> None:
    """Threads, callbacks and a loop are busy at the fork; the parent's callbacks stay there."""
    program = """
    stop = threading.Event()

    def busy(name):
        while not stop.is_set():
            check(nonces(name, 5))

    threads = [threading.Thread(target=busy, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        child = os.fork()
        if not child:
            signal.alarm(20)
            check(nonces(os.getpid(), 3))
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    print("ok")
    """
    assert run_python(FORKED + program, play({"keep": "nothing"}).url, seconds=60) == "ok\n"


def test_a_callback_that_is_due_stays_the_parents(play: Play) -> None:
    program = """
    client.fetch_async_v2(user("u"), lambda *_: print("told", os.getpid(), flush=True))
    child = os.fork()
    if not child:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent", os.getpid(), flush=True)
    """
    service = play({"answers": [{"delay_millis": 300}]})
    lines = run_python(FORKED + program, service.url).split()
    assert lines[0::2] == ["parent", "told"]
    assert lines[1] == lines[3]


def test_a_child_that_drops_what_it_inherited_exits_at_once(play: Play) -> None:
    program = """
    check(["before"])
    child = os.fork()
    if not child:
        del client, a_client
        sys.exit(0)
    began = time.monotonic()
    assert os.waitpid(child, 0)[1] == 0
    # Far below the five seconds that an exit has patience for fetches that are being cut off.
    print(time.monotonic() - began < 2)
    """
    assert run_python(FORKED + program, play({}).url) == "True\n"


def test_a_child_logs_nothing_of_the_parents_fetches(play: Play) -> None:
    program = """
    from service import Lines

    lines = config.logger = Lines()
    client = RemoteEvaluationClient("key", config)
    a_client = AsyncRemoteEvaluationClient("key", config)

    async def main():
        fetch = asyncio.create_task(a_client.fetch_v2(user("parent")))
        await asyncio.sleep(0)
        while not a_client.metrics()["fetches_ok"]:
            time.sleep(0.01)
        # The loop has had no turn in which to log the fetch that is over.
        child = os.fork()
        if not child:
            said = len(lines.kept)
            client.metrics()
            client.close()
            os._exit(len(lines.kept) - said)
        assert os.waitpid(child, 0)[1] == 0
        said = len(lines.kept)
        await fetch
        print(len(lines.kept) > said)

    asyncio.run(main())
    """
    assert run_python(FORKED + program, play({}).url) == "True\n"


def test_multiprocessing_works_by_fork_spawn_and_forkserver(play: Play, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    main = """
    if __name__ == "__main__":
        check(nonces("before", 5))
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                pool.map(check, [nonces(f"{method}-{i}", 20) for i in range(4)])
        print("ok")
    """
    program.write_text(textwrap.dedent(FORKED + main))
    command = [sys.executable, str(program), play({"keep": "nothing"}).url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@contextmanager
def gunicorn(service: str, *options: str) -> Iterator[str]:
    """Serves the application that is made before the fork; at its URL. It ends without a fault."""
    command = [sys.executable, "-m", "gunicorn", "--preload", "--worker-tmp-dir", "/dev/shm"]
    command += ["--bind", "127.0.0.1:0", *options, "preloaded:app"]
    server = subprocess.Popen(
        command, env={**os.environ, "SERVICE": service}, stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        url = None
        while url is None:
            line = server.stderr.readline()
            assert line, "gunicorn has ended"
            url = re.search(r"http://\S+", line)
        yield url[0]
    finally:
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Traceback" not in log, log


def test_gunicorn_serves_with_a_client_made_before_the_fork(play: Play) -> None:
    service = play({"keep": "nothing"})
    with gunicorn(service.url, "--workers", "2", "--threads", "4") as url:

        def get(nonce: str) -> tuple[str, bool]:
            with urllib.request.urlopen(f"{url}/{nonce}", timeout=20) as answer:
                worker, got = answer.read().decode().split()
            return worker, got == f"/{nonce}"

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(get, (f"request-{i}" for i in range(200))))
        assert all(right for _, right in answers)
        assert len({worker for worker, _ in answers}) == 2
