"""Fetches one user's variants and prints them as a table.

    EXPERIMENT_API_KEY=... python3 fetch.py USER_ID [TIMEOUT_MILLIS]

EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.
"""

import json
import os
import sys
import time

from libexperiment import (
    Experiment,
    FetchError,
    RemoteEvaluationClient,
    RemoteEvaluationConfig,
    User,
    Variants,
)


def open_client(timeout_millis: "int | None") -> RemoteEvaluationClient:
    """One client for the whole program: every thread may fetch with it."""
    config = RemoteEvaluationConfig()
    config.server_url = os.environ.get("EXPERIMENT_SERVER_URL", config.server_url)
    if timeout_millis is not None:
        config.fetch_timeout_millis = timeout_millis
    return Experiment.initialize_remote(os.environ.get("EXPERIMENT_API_KEY", ""), config)


def print_variants(variants: Variants) -> None:
    print(f"{'FLAG':16} {'KEY':8} {'VALUE':8} PAYLOAD")
    for flag, variant in variants.items():
        payload = "-"
        if variant.payload is not None:
            payload = json.dumps(variant.payload, ensure_ascii=False, separators=(",", ":"))
        print(f"{flag:16} {variant.key or '-':8} {variant.value or '-':8} {payload}")


def fetch_and_print(client: RemoteEvaluationClient, user_id: str) -> bool:
    began = time.monotonic()
    try:
        # fetch_v2 would return no variants when time is over, as the vendor's SDK does.
        variants = client.fetch_v2_or_raise(User(user_id=user_id))
        elapsed = time.monotonic() - began
        print_variants(variants)
        return True
    except FetchError as error:
        elapsed = time.monotonic() - began
        print(f"{user_id}: {error.status}: {error}", file=sys.stderr)
        return False
    finally:
        print(f"came back after {elapsed * 1000:.1f} ms")


def main() -> int:
    if not 2 <= len(sys.argv) <= 3:
        print(f"usage: {sys.argv[0]} USER_ID [TIMEOUT_MILLIS]", file=sys.stderr)
        return 1
    try:
        client = open_client(int(sys.argv[2]) if len(sys.argv) == 3 else None)
    except FetchError as error:
        print(f"no client: {error.status}: {error}", file=sys.stderr)
        return 1
    with client:
        return 0 if fetch_and_print(client, sys.argv[1]) else 1


if __name__ == "__main__":
    sys.exit(main())
