"""Metrics of client quotas: a line for each user or client that is measured, while quotas are set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konvene.broker.metrics.tables.quotas import KAFKAS_OF_QUOTAS, MAX_LINES
from konvene.broker.net.client_quotas import ClientQuotas
from konvene.shard.contract import Mutations

CONFIG = {
    "quota.window.num": 11, "quota.window.size.seconds": 1, "controller.quota.window.num": 11,
    "controller.quota.window.size.seconds": 1,
}  # fmt: skip


def lines(quotas: ClientQuotas) -> dict[str, dict[tuple[str, ...], Any]]:
    snapshot: Any = SimpleNamespace(broker=SimpleNamespace(client_quotas=quotas))
    read = {
        metric.name.removeprefix("kafka_server_"): dict(metric.read(snapshot)) for metric in KAFKAS_OF_QUOTAS
    }
    return {name: found for name, found in read.items() if found}


def test_what_clients_use_and_how_long_they_are_throttled() -> None:
    """Users are encoded as in Kafka; without a quota there are no lines."""
    now = [1_000]
    quotas = ClientQuotas(CONFIG, lambda: now[0], lambda: 0)  # type: ignore[arg-type]
    assert lines(quotas) == {}
    bob = (("user", "b b"),)
    quotas.update([(bob, {"producer_byte_rate": 100, "controller_mutation_rate": 1})])
    usage = quotas.usage(SimpleNamespace(principal=SimpleNamespace(name="b b")), "c", 2_000, 0)  # type: ignore[arg-type]
    _, throttle_ms = usage.finish(0, SimpleNamespace())
    quota = usage.mutation_quota(strict=False)
    assert quota is not None
    quota.record(Mutations(21, 0))
    assert (throttle_ms, quota.throttle_ms()) == (10_000, 10_000)
    key = ("b%20b", "")
    assert lines(quotas) == {
        "Produce_byte_rate": {key: 200},
        "Produce_throttle_time": {key: 10_000},
        "ControllerMutation_mutation_rate": {key: pytest.approx(21 / 30)},
        "ControllerMutation_tokens": {key: -10},
        "ControllerMutation_throttle_time": {key: 10_000},
    }
    quotas.update([])
    assert lines(quotas) == {}


def test_the_number_of_lines_is_bounded() -> None:
    quotas = ClientQuotas(CONFIG, lambda: 1_000, lambda: 0)  # type: ignore[arg-type]
    quotas.update([((("client-id", None),), {"consumer_byte_rate": 1})])
    for number in range(MAX_LINES + 10):
        quotas.fetch.record("", f"c{number}", 1, 1_000)
    found = lines(quotas)["Fetch_byte_rate"]
    assert len(found) == MAX_LINES
    assert ("", f"c{MAX_LINES + 9}") in found
