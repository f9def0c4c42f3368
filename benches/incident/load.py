"""Calls fetch_v2 at a fixed rate, each time on a thread of its own, whoever is not back yet.

    load.py libexperiment|amplitude_experiment URL RATE SECONDS [SETTING=VALUE ...]

It warms up, prints `ready`, begins when a line comes, and prints one line of JSON for each call
that is back. With a RATE such as `16x5`, so many threads call so many times each. With the setting
`only_sleep` a call is nothing but so many ms of sleep, to hold the others against. The programs in
the other languages do the same. With a RATE such as `16x`, which but for this one only that in Go
knows, so many threads call again and again, and what they have done is printed in the end.
"""

import importlib
import json
import logging
import sys
import threading
import time

package, url, rate, seconds = *sys.argv[1:4], float(sys.argv[4])
settings = {name: int(value) for name, value in (word.split("=") for word in sys.argv[5:])}
only_sleep = settings.pop("only_sleep", 0)
experiment = importlib.import_module(package)
config = experiment.RemoteEvaluationConfig(server_url=url, **settings)
logging.getLogger("Amplitude").setLevel(logging.CRITICAL)
client = experiment.Experiment.initialize_remote("key", config)


def outcome():
    if only_sleep:
        time.sleep(only_sleep / 1000)
        return "ok"
    try:
        return "ok" if client.fetch_v2(experiment.User(user_id="user")) else "empty"
    except Exception:
        return "error"


def call(number):
    began, at = time.monotonic(), time.time()
    what = outcome()
    elapsed = (time.monotonic() - began) * 1000
    line = {"call": number, "start": at * 1000, "elapsed": elapsed, "outcome": what}
    print(json.dumps(line) + "\n", end="", flush=True)


def load():
    begin = time.monotonic()
    for number in range(int(float(rate) * seconds)):
        time.sleep(max(0, begin + number / float(rate) - time.monotonic()))
        threading.Thread(target=call, args=(number,)).start()


def in_turns():
    callers, each = map(int, rate.split("x"))

    def caller(first):
        for number in range(first, first + each):
            call(number)

    for first in range(0, callers * each, each):
        threading.Thread(target=caller, args=(first,)).start()


def again_and_again():
    end = time.monotonic() + seconds
    outcomes = []

    def caller():
        while time.monotonic() < end:
            outcomes.append(outcome())

    callers = [threading.Thread(target=caller) for _ in range(int(rate[:-1]))]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    print(json.dumps({"calls": len(outcomes), "ok": outcomes.count("ok")}))


for _ in range(0 if only_sleep else 20):
    outcome()
print("ready", flush=True)
if not sys.stdin.readline():
    sys.exit()  # whoever started it is gone
if rate.endswith("x"):
    again_and_again()
elif "x" in rate:
    in_turns()
else:
    load()
