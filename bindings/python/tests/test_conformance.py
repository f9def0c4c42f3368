"""The cases of tests/conformance, each once for every way of fetching."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from service import Lines, Mock

import libexperiment as exp

FOLDER = Path(__file__).parents[3] / "tests" / "conformance"
CASES = [case for file in sorted(FOLDER.glob("*.json")) for case in json.loads(file.read_text())]
ONLY = os.environ.get("CONFORMANCE_ONLY", "")
LEVELS = {"error": "ERROR", "warn": "WARNING", "info": "INFO", "debug": "DEBUG"}
VENDORS = {"tracks_assignment": "tracksAssignment", "tracks_exposure": "tracksExposure"}
VENDORS["flag_keys"] = "flagKeys"
LIBRARY = f"libexperiment-python/{exp.__version__}"
CASE = "name why client server creation steps requests connections logs except"
STEP = "user options fetch begins_after_millis cancel_after_millis gets within_millis"
FIELDS = ("key", "value", "payload", "metadata")
ERROR = "error retryable attempts http_status retry_after_millis phase message"


def fetch_async_v2(client: Any, deployed: bool, user: Any, options: Any) -> Any:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    start = client.fetch_async if deployed else client.fetch_async_v2
    start(user, lambda *outcome: told.put(outcome), options)
    whose, variants, *errors = told.get(timeout=30)
    assert (whose, variants) == (user, {} if errors else variants)
    for error in errors:
        raise error
    return variants


WAYS: dict[str, Any] = {
    "fetch_v2": lambda client, old, *args: (client.fetch if old else client.fetch_v2)(*args),
    "fetch_v2_or_raise": lambda client, _, *args: client.fetch_v2_or_raise(*args),
    "fetch_async_v2": fetch_async_v2,
    "asyncio": lambda client, _, *args: asyncio.run(client.fetch_v2_or_raise(*args)),
}


def known(value: dict[str, Any], names: str) -> dict[str, Any]:
    assert value.keys() <= set(names.split()), "a field that the runner does not know"
    return value


class Run:  # of one case in one way
    def __init__(self, case: dict[str, Any], way: str, mock: Mock) -> None:
        self.case, self.way = known(case, CASE), way
        self.lines = Lines()
        with mock.play(case.get("server", {})) as self.service:
            self.run()

    def run(self) -> None:
        try:
            self.client = self.new_client()
        except exp.FetchError as error:
            self.check_error(self.case["creation"], error)
        else:
            assert "creation" not in self.case, "the client was made"
            for step in self.case["steps"]:
                self.step(step)
        self.check_lines()
        if not isinstance(self.case.get("server"), str):
            self.check_server(self.service.seen())

    def new_client(self) -> Any:
        settings: Any = {"api_key": "conformance-key", "server_url": "{url}", "logger": self.lines}
        settings |= {"use_environment_proxy": False, **self.case.get("client", {})}
        settings = {k: self.setting(v) for k, v in settings.items() if v is not None}
        self.api_key = settings.pop("api_key")
        if "server_zone" in settings:
            settings["server_zone"] = exp.ServerZone[settings["server_zone"]]
        kind: Any = getattr(exp, f"{'Async' * (self.way == 'asyncio')}RemoteEvaluationClient")
        return kind(self.api_key, exp.RemoteEvaluationConfig(**settings))

    def setting(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        host = self.service.url.rpartition("/")[2]
        value = value.replace("{url}", self.service.url).replace("{host}", host)
        value = value.replace("{port}", host.rpartition(":")[2])
        return exp.NO_LIMIT if value == "EXP_NO_LIMIT" else value

    def step(self, step: Any) -> None:
        if isinstance(step, list):
            with ThreadPoolExecutor(len(step)) as pool:
                list(pool.map(self.step, step))
            return
        time.sleep(step.get("begins_after_millis", 0) / 1000)
        if "sleep" in step:
            time.sleep(known(step, "sleep")["sleep"] / 1000)
        elif "close" in step:
            self.close(known(step, "close begins_after_millis")["close"])
        else:
            self.fetch(known(step, STEP + " not_before_millis"))

    def close(self, millis: int) -> None:
        closed = self.client.close(millis)
        if self.way == "asyncio":
            asyncio.run(closed)

    def fetch(self, step: dict[str, Any]) -> None:
        user = exp.User() if "user" in step else None
        if user:
            vars(user).update(step["user"])
        chosen = {VENDORS.get(k, k): v for k, v in step.get("options", {}).items()}
        cancel = exp.Cancel()
        options = exp.FetchOptions(cancel=cancel, **chosen)
        if "cancel_after_millis" in step:
            threading.Timer(step["cancel_after_millis"] / 1000, cancel.fire).start()
        began = time.monotonic()
        try:
            deployed = step.get("fetch") == "deployed"
            outcome = WAYS[self.way](self.client, deployed, user, options)
            if deployed and isinstance(outcome, exp.Variants):
                outcome = outcome.deployed()
        except exp.FetchError as error:
            outcome = error
        elapsed = (time.monotonic() - began) * 1000
        self.check_outcome(step["gets"], outcome)
        assert step.get("not_before_millis", 0) <= elapsed <= step.get("within_millis", 5000)

    def check_outcome(self, gets: dict[str, Any], outcome: Any) -> None:
        if isinstance(outcome, exp.FetchError):
            self.check_error(gets, outcome)
        elif "error" in gets:  # by the table of the README
            retries = self.case.get("client", {}).get("fetch_retries", 0)
            assert (self.way, gets["retryable"], retries, outcome) == ("fetch_v2", True, 0, {})
        else:
            texts = {flag: {k: getattr(v, k) for k in FIELDS} for flag, v in outcome.items()}
            there = {f: {k: v for k, v in t.items() if v is not None} for f, t in texts.items()}
            assert there == known(gets, "variants attempts")["variants"]
            if "attempts" in gets and isinstance(outcome, exp.Variants):
                assert outcome.attempts == gets["attempts"]

    def check_error(self, gets: dict[str, Any], error: exp.FetchError) -> None:
        self.lines.info("%s", error)
        got = {
            "error": str(error.status),
            "retryable": error.retryable,
            "attempts": error.attempts,
            "http_status": error.status_code or 0,
            "retry_after_millis": round((error.retry_after or 0) * 1000),
            "phase": "none" if error.phase is None else error.phase.name.lower(),
            "message": [part for part in gets.get("message", []) if part in str(error)],
        }
        assert {name: got[name] for name in known(gets, ERROR)} == gets, error

    def check_lines(self) -> None:
        for want in self.case.get("logs", []):
            parts, level = known(want, "level message")["message"], LEVELS[want["level"]]
            found = [line for line in self.lines.kept if line[0] == level]
            assert any(all(part in text for part in parts) for _, text in found), self.lines.kept
        assert not [text for _, text in self.lines.kept if self.api_key and self.api_key in text]

    def check_server(self, seen: dict[str, Any]) -> None:
        connections, requests = seen["connections_accepted"], seen["requests"]
        assert self.case.get("connections", connections) == connections
        assert len(requests) == len(self.case.get("requests", requests)), requests
        for want, got in zip(self.case.get("requests", []), requests):
            self.check_request(known(want, "method path headers body"), got)

    def check_request(self, want: dict[str, Any], got: dict[str, Any]) -> None:
        assert all(got[name] == want[name] for name in want.keys() & {"method", "path"}), got
        headers = {name.lower(): value for name, value in got["headers"]}
        for name, value in want.get("headers", {}).items():
            has: Any = headers.get(name.lower())
            parts = isinstance(value, list) and all(part in has for part in value)
            assert parts or has == value, (name, has)
        if "body" in want:
            body = json.dumps(want["body"]).replace("{library}", LIBRARY)
            assert json.loads(got["body"]) == json.loads(body)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, mock: Mock) -> dict[Any, Future[Run]]:
    """All that were selected, four at once, and over before pytest takes their time to report."""
    chosen: list[Any] = [i for i in request.session.items if i.name.startswith("test_case[")]
    with ThreadPoolExecutor(4) as pool:
        return {i.name: pool.submit(Run, mock=mock, **i.callspec.params) for i in chosen}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", [c for c in CASES if ONLY in c["name"]], ids=lambda c: c["name"])
def test_case(case: Any, way: str, runs: Any, request: pytest.FixtureRequest) -> None:
    if "python" in case.get("except", {}):
        pytest.skip(case["except"]["python"])
    assert runs[request.node.name].result().way == way
