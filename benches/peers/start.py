"""What one of the peers, or ours, costs a Python process, in one that has done nothing else.

    start.py PEER URL        URL answers as the service of each does that knows no flags

Prints ms to import it, ms from there to the first answer, and what the process has then, idle, that
it had not before: threads, descriptors, KiB of memory.
"""

import os
import sys
import time

HOUR = 3600


def libexperiment(url):
    from libexperiment import Experiment, RemoteEvaluationConfig, User

    yield
    config = RemoteEvaluationConfig(server_url=url)
    client = Experiment.initialize_remote("key", config)
    yield client.fetch_v2(User(user_id="user")), client


def flipt(url):
    from flipt_client import FliptClient
    from flipt_client.models import ClientOptions

    yield
    client = FliptClient(ClientOptions(url=url, update_interval=HOUR))
    yield client.list_flags(), client


def statsig(url):
    from statsig_python_core import Statsig, StatsigOptions, StatsigUser

    yield
    options = StatsigOptions(
        specs_url=f"{url}/specs",
        specs_sync_interval_ms=HOUR * 1000,
        disable_all_logging=True,
        disable_country_lookup=True,
    )
    client = Statsig("secret-key", options)
    client.initialize().wait()
    yield client.check_gate(StatsigUser("user"), "gate"), client


def eppo(url):
    import eppo_client

    class Logger(eppo_client.AssignmentLogger):
        pass

    yield
    config = eppo_client.ClientConfig(
        api_key="key", base_url=url, assignment_logger=Logger(), poll_interval_seconds=HOUR
    )
    client = eppo_client.init(config)
    client.wait_for_initialization()
    yield client.get_boolean_assignment("flag", "user", {}, False), client


def yggdrasil(_):
    from yggdrasil_engine.engine import UnleashEngine

    yield
    engine = UnleashEngine()
    engine.take_state('{"version": 2, "features": []}')
    yield engine.is_enabled("flag", {}), engine


def has():
    """Threads, descriptors, KiB of memory."""
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    memory = pages * os.sysconf("SC_PAGESIZE") // 1024
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), memory


def main():
    peer = globals()[sys.argv[1]](sys.argv[2])
    before, began = has(), time.perf_counter()
    next(peer)
    imported = time.perf_counter()
    kept = next(peer)
    answered = time.perf_counter()
    time.sleep(0.3)  # what it started has come to rest
    more = [now - then for now, then in zip(has(), before)]
    print((imported - began) * 1e3, (answered - imported) * 1e3, *more, flush=True)
    del kept
    os._exit(0)  # how they end is another matter


if __name__ == "__main__":
    main()
