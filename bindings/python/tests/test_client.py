"""The blocking client, its settings, and what comes back."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import pickle
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
from conftest import HELD, Connect, Play
from service import Lines, run_python

from libexperiment import (
    NO_LIMIT,
    Cancel,
    ClientClosedError,
    Experiment,
    FetchError,
    FetchNetworkError,
    FetchOptions,
    FetchTimeoutError,
    InvalidArgumentError,
    Phase,
    RemoteEvaluationClient,
    RemoteEvaluationConfig,
    ServerZone,
    Status,
    User,
    Variant,
)

USER = User(user_id="u")


def answer(body: str) -> dict[str, Any]:
    return {"answers": [{"body": body}]}


def test_a_timeout_is_a_timeout_error(play: Play, connect: Connect) -> None:
    with pytest.raises(TimeoutError) as caught:
        connect(play(HELD), fetch_timeout_millis=50).fetch_v2_or_raise(USER)
    error = caught.value
    assert isinstance(error, FetchTimeoutError)
    assert (error.status, error.phase, error.attempts) == (Status.TIMEOUT, Phase.FIRST_BYTE, 1)
    assert error.status_code is None
    assert 0.04 < error.timings[Phase.FIRST_BYTE] < 0.35


def test_a_refused_connection_is_a_connection_error(mock: Any, connect: Connect) -> None:
    with pytest.raises(ConnectionError) as caught:
        connect(mock.play("refused")).fetch_v2_or_raise(USER)
    assert isinstance(caught.value, FetchNetworkError)


def test_an_http_error_has_its_status_code(play: Play, connect: Connect) -> None:
    script = {"answers": [{"status": 429, "headers": [["Retry-After", "7"]]}]}
    with pytest.raises(FetchError) as caught:
        connect(play(script)).fetch_v2_or_raise(USER)
    error = caught.value
    assert (error.status_code, error.retryable, error.retry_after) == (429, True, 7.0)


def test_errors_can_be_pickled(play: Play, connect: Connect) -> None:
    with pytest.raises(FetchTimeoutError) as caught:
        connect(play(HELD), fetch_timeout_millis=50).fetch_v2_or_raise(USER)
    same = pickle.loads(pickle.dumps(caught.value))
    assert type(same) is FetchTimeoutError
    assert (str(same), vars(same)) == (str(caught.value), vars(caught.value))


def test_a_fetch_tells_how_it_was(play: Play, connect: Connect) -> None:
    client = connect(play({}))
    first, second = client.fetch_v2_or_raise(USER), client.fetch_v2_or_raise(USER)
    assert (first.connection_reused, second.connection_reused) == (False, True)
    assert first.attempts == 1
    assert first.timings[Phase.CONNECT] > 0
    assert Phase.CONNECT not in second.timings
    assert list(first) == ["demo-checkout", "demo-color", "demo-greeting", "demo-nonce"]


def test_values_that_are_no_texts_are_json_as_it_was_sent(play: Play, connect: Connect) -> None:
    body = """{
        "number": {"value": 1.50, "key": 12345678901234567890123},
        "large": {"value": 2.0e400},
        "object": {"value": {"a": [1, true]}},
        "false": {"value": false},
        "nul\\u0000": {"value": 0},
        "nothing": {"value": null, "key": null, "payload": null},
        "text": {"value": "\\u0000\\ud83d\\ude00"}
    }"""
    variants = connect(play(answer(body))).fetch_v2(USER)
    assert {flag: variant.value for flag, variant in variants.items()} == {
        "number": "1.50",
        "large": "2.0e400",
        "object": '{"a":[1,true]}',
        "false": "false",
        "nul\0": "0",
        "nothing": None,
        "text": "\0\U0001f600",
    }
    assert variants["number"].key == "12345678901234567890123"


def test_no_payload_fails_a_fetch(play: Play, connect: Connect) -> None:
    body = f'{{"f": {{"payload": [1, {"9" * 5000}, {"[" * 100 + "]" * 100}]}}}}'
    payload = connect(play(answer(body))).fetch_v2(USER)["f"].payload
    assert payload[:2] == [1, float("inf")]


def test_an_integer_that_python_is_set_not_to_read_fails_no_fetch(play: Play) -> None:
    program = """
        import sys
        from libexperiment import *

        getattr(sys, "set_int_max_str_digits", lambda digits: None)(640)
        client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))
        print(client.fetch_v2(User(user_id="u"))["f"].payload > 1e200)
    """
    assert run_python(program, play(answer(f'{{"f": {{"payload": {"9" * 700}}}}}')).url) == "True\n"


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_a_variant_is_the_same_before_and_after_it_is_read(
    play: Play, connect: Connect, way: Callable[[Variant], Variant]
) -> None:
    client = connect(play(answer('{"f": {"key": "k", "payload": [0], "metadata": {"a": 1}}}')))
    known = Variant(None, [0], "k", {"a": 1})
    for changed in (lambda _: None, lambda v: v.payload):
        fetched = client.fetch_v2(USER)["f"]
        changed(fetched)
        again = way(fetched)
        assert again == known
        assert (repr(again), again.metadata) == (repr(known), known.metadata)
        assert fetched.payload is fetched.payload


def test_a_variant_can_be_changed_before_it_is_read(play: Play, connect: Connect) -> None:
    client = connect(play(answer('{"f": {"payload": [0], "metadata": {"a": 1}}}')))
    fetched = client.fetch_v2(USER)["f"]
    fetched.payload = "mine"
    assert (fetched.payload, fetched.metadata) == ("mine", {"a": 1})
    fetched = client.fetch_v2(USER)["f"]
    fetched.metadata = None
    assert (fetched.payload, fetched.metadata) == ([0], None)


def test_variants_are_equal_by_key_value_and_payload() -> None:
    assert Variant("v", [1], "k", {"a": 1}) == Variant("v", [1], "k")
    assert Variant("v", [1], "k") != Variant("v", [2], "k")
    assert Variant("v") != "v"
    assert str(Variant("v", None, "k")) == "key: k, value: v, payload: None, metadata:None"


def test_arguments_and_defaults_are_the_vendors() -> None:
    def parameters(function: Any, count: int) -> dict[str, Any]:
        known = list(inspect.signature(function).parameters.values())[:count]
        return {parameter.name: parameter.default for parameter in known}

    assert parameters(RemoteEvaluationConfig, 12) == {
        "debug": False,
        "server_url": "https://api.lab.amplitude.com",
        "fetch_timeout_millis": 10000,
        "fetch_retries": 0,
        "fetch_retry_backoff_min_millis": 500,
        "fetch_retry_backoff_max_millis": 10000,
        "fetch_retry_backoff_scalar": 1.5,
        "fetch_retry_timeout_millis": 10000,
        "fetch_pool_acquire_timeout_millis": None,
        "server_zone": ServerZone.US,
        "connection_pool_max_size": 8,  # the vendor's is 1
        "logger": None,
    }
    fields = """device_id user_id country city region dma language platform version os
        device_manufacturer device_brand device_model carrier library ip_address user_properties
        groups group_properties group_cohort_ids cohort_ids"""
    assert list(parameters(User, 99)) == fields.split()
    assert list(parameters(FetchOptions, 3)) == ["tracksAssignment", "tracksExposure", "flagKeys"]
    assert list(parameters(Variant, 99)) == ["value", "payload", "key", "metadata"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch_timeout_millis", 0),
        ("fetch_timeout_millis", -1),
        ("fetch_timeout_millis", 1.5),
        ("fetch_timeout_millis", "500"),
        ("fetch_timeout_millis", float("nan")),
        ("fetch_timeout_millis", float("inf")),
        ("fetch_deadline_millis", -1),
        ("fetch_retries", 2**32),
        ("fetch_retry_backoff_scalar", 0.5),
        ("fetch_retry_backoff_scalar", "fast"),
        pytest.param("fetch_retry_backoff_scalar", 10**400, id="beyond a double"),
        ("connection_pool_max_size", 0),
        ("server_url", "ftp://example.com"),
        ("server_url", None),
        ("server_zone", "mars"),
        ("ca_file", "/nowhere.pem"),
        ("proxy_url", "socks5://localhost"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    config = RemoteEvaluationConfig(**{name: value})
    with pytest.raises(ValueError, match=name) as caught:
        RemoteEvaluationClient("key", config)
    assert isinstance(caught.value, InvalidArgumentError)


def test_whole_numbers_may_be_floats(play: Play, connect: Connect) -> None:
    assert connect(play({}), fetch_timeout_millis=0.5 * 1000).fetch_v2(USER)


def test_the_worst_case_is_told() -> None:
    config = RemoteEvaluationConfig(fetch_timeout_millis=500)
    assert config.worst_case_millis() == 1000
    config.fetch_pool_acquire_timeout_millis = NO_LIMIT
    assert config.worst_case_millis() == NO_LIMIT


def test_a_proxys_password_is_not_shown() -> None:
    assert "secret" not in repr(RemoteEvaluationConfig(proxy_url="http://u:secret@proxy"))


@pytest.mark.parametrize("key", ["", "a\nb", None, 5])
def test_a_key_that_cannot_be_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="api_key"):
        RemoteEvaluationClient(key)


def test_a_user_is_written_as_json_writes_it() -> None:
    class Name(str):
        pass

    fields: dict[str, Any] = {
        "user_id": '"\\/\n\0\x7f \u2028 é 😀',
        "city": Name("Zürich"),
        "user_properties": {"a": [1, 2.5, True, None, {"b": ""}]},
    }
    user = User(**fields)
    user.more = 'x"'  # type: ignore[attr-defined]
    assert json.loads(user.to_json()) == fields | {"more": 'x"'}
    assert User(**fields).to_json() == json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def test_names_of_attributes_that_are_no_texts_are_written_as_json_writes_them() -> None:
    class Name(str):
        pass

    user = User(user_id="u")
    more: dict[Any, Any] = {
        5: "five",
        None: [1],
        True: "yes",
        1.5: {},
        Name("é"): "ü",
        "None": None,
    }
    attributes: dict[Any, Any] = vars(user)
    attributes.update(more)
    known = {"user_id": "u"} | {name: value for name, value in more.items() if value is not None}
    assert user.to_json() == json.dumps(known, ensure_ascii=False, separators=(",", ":"))
    attributes["a", "b"] = "c"
    with pytest.raises(InvalidArgumentError, match="keys must be str"):
        user.to_json()


def test_the_user_stays_as_it_was(play: Play, connect: Connect) -> None:
    user = User(user_id="u", user_properties={"a": None})
    before = dict(vars(user))
    connect(play({})).fetch_v2(user)
    assert vars(user) == before


def test_sets_are_lists_to_the_service() -> None:
    assert User(user_id="u", cohort_ids={"c"}).to_json() == '{"user_id":"u","cohort_ids":["c"]}'  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [float("nan"), object(), "\ud800", {1: {}.keys()}],
    ids=["nan", "object", "text", "keys"],
)
def test_a_user_that_is_no_json_is_refused(play: Play, connect: Connect, value: Any) -> None:
    client = connect(play({}))
    with pytest.raises(ValueError, match="user"):
        client.fetch_v2(User(user_id="u", user_properties={"value": value}))


def test_options_that_cannot_be_are_refused(play: Play, connect: Connect) -> None:
    client = connect(play({}))
    for deadline in (-1, 86_400_001, 0.5):
        with pytest.raises(ValueError, match="deadline_millis"):
            client.fetch_v2(USER, FetchOptions(deadline_millis=deadline))  # type: ignore[arg-type]


def test_a_deadline_bounds_one_fetch(play: Play, connect: Connect) -> None:
    client = connect(play(HELD))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        client.fetch_v2_or_raise(USER, FetchOptions(deadline_millis=100))
    assert 0.09 < time.monotonic() - began < 0.4


def test_threads_fetch_at_once(play: Play, connect: Connect) -> None:
    service = play({"answers": [{"delay_millis": 200}]})
    client = connect(service)
    threads = [threading.Thread(target=client.fetch_v2, args=(USER,)) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Eight, one after the other, would take 1.6 s.
    assert time.monotonic() - began < 0.7


def test_other_threads_run_while_one_waits(play: Play, connect: Connect) -> None:
    client = connect(play(HELD), fetch_timeout_millis=300)
    thread = threading.Thread(target=client.fetch_v2, args=(USER,))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 30


def test_a_context_closes_its_client(play: Play, connect: Connect) -> None:
    with connect(play({})) as client:
        assert client.fetch_v2(USER)
    with pytest.raises(ClientClosedError):
        client.fetch_v2(USER)
    assert client.close() is True


def test_closing_cuts_off_what_does_not_end_in_time(play: Play, connect: Connect) -> None:
    client = connect(play(HELD))
    raised: list[BaseException] = []

    def fetch() -> None:
        try:
            client.fetch_v2(USER)
        except FetchError as error:
            raised.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    while not client.metrics()["connections_leased"]:
        time.sleep(0.001)
    assert client.close(50) is False
    thread.join(5)
    assert [type(error) for error in raised] == [ClientClosedError]


def test_one_client_for_each_key_until_it_is_closed() -> None:
    lines = Lines()
    client = Experiment.initialize_remote("one", RemoteEvaluationConfig(logger=lines))
    assert Experiment.initialize_remote("one") is client
    assert lines.kept == []
    assert Experiment.initialize_remote("one", RemoteEvaluationConfig()) is client
    assert lines.kept[0][0] == "WARNING"
    client.close()
    assert Experiment.initialize_remote("one") is not client


def test_threads_that_ask_at_once_get_one_client() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for i in range(50):
                # Starts the four together.
                start = threading.Barrier(4)

                def ask(key: str, start: threading.Barrier = start) -> RemoteEvaluationClient:
                    start.wait(5)
                    return Experiment.initialize_remote(key)

                assert len({id(client) for client in pool.map(ask, [f"at-once-{i}"] * 4)}) == 1
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("millis", [-1, 0.5, 86_400_001])
def test_a_client_is_not_closed_in_a_time_that_cannot_be(
    play: Play, connect: Connect, millis: Any
) -> None:
    client = connect(play({}))
    with pytest.raises(ValueError, match="timeout_millis"):
        client.close(millis)
    assert client.fetch_v2(USER)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_what_is_the_librarys_is_never_duplicated(
    play: Play, connect: Connect, duplicate: Any
) -> None:
    """It would be freed twice, and mean nothing in another process."""
    for original in (connect(play({})), Cancel(), FetchOptions(cancel=Cancel())):
        with pytest.raises(TypeError, match="neither be copied nor pickled"):
            duplicate(original)


def test_the_old_fetch_warns_and_leaves_out_what_is_not_deployed(
    play: Play, connect: Connect
) -> None:
    body = """{"on": {"key": "on"}, "off": {"key": "off", "metadata": {"default": true}},
        "gone": {"key": "on", "metadata": {"deployed": false}}, "odd": {"metadata": "text"}}"""
    client = connect(play(answer(body)))
    with pytest.warns(DeprecationWarning, match="fetch_v2"):
        assert list(client.fetch(USER)) == ["on", "odd"]
    assert list(client.fetch_v2_or_raise(USER).deployed()) == ["on", "odd"]


def test_a_switch_that_was_fired_stays_fired(play: Play, connect: Connect) -> None:
    cancel = Cancel()
    cancel.fire()
    client = connect(play({}))
    for _ in range(2):
        with pytest.raises(FetchError) as caught:
            client.fetch_v2(USER, FetchOptions(cancel=cancel))
        assert caught.value.status is Status.CANCELED


def test_metrics_are_told_in_two_forms(play: Play, connect: Connect) -> None:
    client = connect(play({}))
    client.fetch_v2(USER)
    assert client.metrics()["fetches_ok"] == 1
    assert "experiment_fetches_ok_total 1\n" in client.metrics_openmetrics()
    assert client.metrics_openmetrics().endswith("# EOF\n")


def test_nothing_of_the_user_and_no_key_is_logged(play: Play, connect: Connect) -> None:
    lines = Lines()
    script = {"answers": [{"status": 503}, {"status": 400}, {}]}
    client = connect(play(script), logger=lines)
    user = User(user_id="ada@example.com", user_properties={"secret": "hush"})
    assert client.fetch_v2(user) == {}
    with pytest.raises(FetchError):
        client.fetch_v2(user)
    client.fetch_v2(user)
    text = repr(lines.kept)
    assert {level for level, _ in lines.kept} == {"DEBUG", "WARNING"}
    for secret in ("ada", "secret", "hush", "test-key"):
        assert secret not in text


def test_the_level_of_the_logger_is_kept(play: Play, connect: Connect) -> None:
    lines = Lines()
    lines.setLevel(logging.ERROR)
    connect(play({"answers": [{"status": 503}]}), logger=lines).fetch_v2(USER)
    assert lines.kept == []


def test_lines_of_workers_come_before_the_outcome(play: Play, connect: Connect) -> None:
    lines = Lines()
    client = connect(play({"answers": [{"status": 503}]}), logger=lines)
    seen: list[int] = []
    told = threading.Event()

    def callback(*_: Any) -> None:
        seen.append(len(lines.kept))
        told.set()

    client.fetch_async_v2(USER, callback)
    assert told.wait(5)
    assert seen[0] > 0


def test_a_filter_that_raises_fails_no_fetch(play: Play, connect: Connect) -> None:
    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError(record.getMessage())

    logger = logging.Logger("raising", logging.DEBUG)
    logger.addFilter(Raising())
    client = connect(play({}), logger=logger)
    assert client.fetch_v2(USER)
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    for _ in range(2):
        client.fetch_async_v2(USER, lambda *outcome: told.put(outcome))
        told.get(timeout=5)
