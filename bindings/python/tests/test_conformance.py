"""The cases of tests/conformance, each once for every way of fetching."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from service import Mock

import libexperiment as exp

FOLDER = Path(__file__).parents[3] / "tests" / "conformance"
CASES = [case for file in sorted(FOLDER.glob("*.json")) for case in json.loads(file.read_text())]
ONLY = os.environ.get("CONFORMANCE_ONLY", "")
LEVELS = {"error": "ERROR", "warn": "WARNING", "info": "INFO", "debug": "DEBUG"}
VENDORS = {"tracks_assignment": "tracksAssignment", "tracks_exposure": "tracksExposure"}
CASE = "name why client server creation steps requests connections logs except"
STEP = "user options fetch begins_after_millis cancel_after_millis gets within_millis"
ERROR = "error retryable attempts http_status retry_after_millis phase message"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def fetch_v2(client: Any, deployed: bool, *args: Any) -> Any:
    return client.fetch(*args) if deployed else client.fetch_v2(*args)


def fetch_v2_or_raise(client: Any, _: bool, *args: Any) -> Any:
    return client.fetch_v2_or_raise(*args)


def fetch_async_v2(client: Any, deployed: bool, user: Any, options: Any) -> Any:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    start = client.fetch_async if deployed else client.fetch_async_v2
    start(user, lambda *outcome: told.put(outcome), options)
    whose, variants, *errors = told.get(timeout=30)
    assert (whose, variants) == (user, {} if errors else variants)
    if errors:
        raise errors[0]
    return variants


def asyncio_fetch(client: Any, _: bool, *args: Any) -> Any:
    return asyncio.run(client.fetch_v2_or_raise(*args))


def known(value: dict[str, Any], names: str) -> dict[str, Any]:
    unknown = value.keys() - set(names.split())
    assert not unknown, f"fields that the runner does not know: {unknown}"
    return value


class Run:
    """One case in one way."""

    def __init__(self, case: dict[str, Any], way: Any, mock: Mock) -> None:
        self.case, self.way = known(case, CASE), way
        self.lines: list[tuple[str, str]] = []
        self.service = mock.play(case.get("server", {}))
        try:
            self.run()
        finally:
            self.service.stop()

    def run(self) -> None:
        try:
            self.client = self.new_client()
        except exp.FetchError as error:
            self.check_error(self.case["creation"], error)
        else:
            assert "creation" not in self.case, "the client was made"
            for step in self.case["steps"]:
                self.step(step)
            self.close(1000)
        self.check_lines()
        if self.service.number is not None:
            self.check_server(self.service.seen())

    def new_client(self) -> Any:
        logger = logging.Logger("conformance", logging.DEBUG)
        logger.addFilter(lambda line: self.lines.append((line.levelname, line.getMessage())))  # type: ignore
        settings = {"api_key": "conformance-key", "server_url": "{url}"}
        settings |= {
            "use_environment_proxy": False,
            "logger": logger,
            **self.case.get("client", {}),
        }
        settings = {k: self.setting(v) for k, v in settings.items() if v is not None}
        self.api_key = settings.pop("api_key")
        if "server_zone" in settings:
            settings["server_zone"] = exp.ServerZone[settings["server_zone"]]
        asynchronous = self.way is asyncio_fetch
        kind = exp.AsyncRemoteEvaluationClient if asynchronous else exp.RemoteEvaluationClient
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
                for done in [pool.submit(self.step, one) for one in step]:
                    done.result()
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
        if self.way is asyncio_fetch:
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
            outcome = self.way(self.client, deployed, user, options)
            if deployed and isinstance(outcome, exp.Variants):
                outcome = outcome.deployed()
        except exp.FetchError as error:
            outcome = error
        elapsed = (time.monotonic() - began) * 1000
        self.check_outcome(step["gets"], outcome)
        earliest, latest = step.get("not_before_millis", 0), step.get("within_millis", 5000)
        assert earliest <= elapsed <= latest, f"came back after {elapsed:.0f} ms"

    def check_outcome(self, gets: dict[str, Any], outcome: Any) -> None:
        if isinstance(outcome, exp.FetchError):
            self.check_error(gets, outcome)
        elif "error" in gets:  # by the table of the README
            retries = self.case.get("client", {}).get("fetch_retries", 0)
            assert (self.way, gets["retryable"], retries, outcome) == (fetch_v2, True, 0, {})
        else:
            known(gets, "variants attempts")
            texts = {flag: {k: getattr(v, k) for k in v.__slots__} for flag, v in outcome.items()}
            there = {f: {k: v for k, v in t.items() if v is not None} for f, t in texts.items()}
            assert there == gets["variants"]
            if "attempts" in gets and isinstance(outcome, exp.Variants):
                assert outcome.attempts == gets["attempts"]

    def check_error(self, gets: dict[str, Any], error: exp.FetchError) -> None:
        self.lines.append(("raised", str(error)))
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
            found = [line for line in self.lines if line[0] == level]
            assert any(all(part in text for part in parts) for _, text in found), self.lines
        assert not [text for _, text in self.lines if self.api_key and self.api_key in text]

    def check_server(self, seen: dict[str, Any]) -> None:
        connections, requests = seen["connections_accepted"], seen["requests"]
        assert connections == self.case.get("connections", connections)
        assert len(requests) == len(self.case.get("requests", requests)), requests
        for want, got in zip(self.case.get("requests", []), requests):
            self.check_request(known(want, "method path headers body"), got)

    def check_request(self, want: dict[str, Any], got: dict[str, Any]) -> None:
        for name in want.keys() & {"method", "path"}:
            assert got[name] == want[name]
        headers = {name.lower(): value for name, value in got["headers"]}
        for name, value in want.get("headers", {}).items():
            has = headers.get(name.lower())
            parts = isinstance(value, list) and all(part in has for part in value)
            assert parts or has == value, (name, has)
        if "body" in want:
            library = f"libexperiment-python/{exp.__version__}"
            body = json.dumps(want["body"]).replace("{library}", library)
            assert json.loads(got["body"]) == json.loads(body)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, mock: Mock) -> Iterator[dict[Any, Future[Run]]]:
    """All that were selected, eight at once: most of them only wait."""
    chosen: list[Any] = [i for i in request.session.items if i.name.startswith("test_case[")]
    with ThreadPoolExecutor(8) as pool:
        yield {i.name: pool.submit(Run, *i.callspec.params.values(), mock) for i in chosen}


@pytest.mark.parametrize("way", [fetch_v2, fetch_v2_or_raise, fetch_async_v2, asyncio_fetch])
@pytest.mark.parametrize("case", [c for c in CASES if ONLY in c["name"]], ids=lambda c: c["name"])
def test_case(case: Any, way: Any, runs: Any, request: pytest.FixtureRequest) -> None:
    if "python" in case.get("except", {}):
        pytest.skip(case["except"]["python"])
    assert runs[request.node.name].result().way is way
