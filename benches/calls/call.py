"""As call.c, in Python.

call.py URL FETCHES LOOKUPS USERS
"""

import statistics
import sys
import time
from itertools import repeat

from libexperiment import Experiment, RemoteEvaluationConfig, User

url, (fetch_count, lookup_count, user_count) = sys.argv[1], map(int, sys.argv[2:])
client = Experiment.initialize_remote("key", RemoteEvaluationConfig(server_url=url))


def new_user():
    return User(user_id="user-1234", device_id="device-5678")


user = new_user()
variants = client.fetch_v2(user)


def fetches(count):
    for _ in repeat(None, count):
        client.fetch_v2(user)


def lookups(count):
    for _ in repeat(None, count):
        value = variants["flag-one"].value
    return value


def users(count):
    for _ in repeat(None, count):
        new_user()


def measure(what, calls, batches, batch):
    took, processor = [], time.process_time_ns()
    for _ in range(batches):
        began = time.perf_counter_ns()
        calls(batch)
        took.append((time.perf_counter_ns() - began) / batch)
    processor = (time.process_time_ns() - processor) / batches / batch
    print(what, statistics.median(took), processor, "-")


fetches(20)
measure("fetch", fetches, fetch_count, 1)
measure("lookup", lookups, lookup_count, 1000)
measure("user", users, user_count, 1000)
