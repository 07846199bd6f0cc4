"""Metrics and alerts of `konvene explain follow`: its options, and what each poll passes to them."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from konvene.cli.explain.durations import milliseconds
from konvene.cli.options import fail
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.pipeline.answers import Advice, Gold, Rebalance
    from konvene.pipeline.monitoring.alerts import Limits
    from konvene.pipeline.monitoring.delivery import Courier, Target
    from konvene.pipeline.monitoring.firing import Firing
    from konvene.pipeline.monitoring.metrics import FollowerMetrics

__all__ = ["Monitoring", "Observer", "monitoring_options", "observing"]

F = TypeVar("F", bound=Callable[..., object])

ADVICE_WINDOW_MS = 86_400_000
"""Advice that alerts rest on counts the rebalances of the last day."""
ADVICE_EVERY_S = 600.0
"""Advice is computed again after this time, and whenever a group has rebalanced."""


class Monitoring(NamedTuple):
    """The options: where metrics are served, who receives alerts, and the limits of alerts."""

    port: int | None
    host: str
    webhooks: tuple[str, ...]
    commands: tuple[str, ...]
    rebalances: tuple[int, int] | None
    converge_ms: int | None
    lag_ms: int | None

    @property
    def limits(self) -> Limits:
        from konvene.pipeline.monitoring.alerts import Limits

        count, window_ms = self.rebalances or (None, 0)
        return Limits(count, window_ms, self.converge_ms, self.lag_ms)


def _duration(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    if text is None or text == "none":
        return None
    ms = milliseconds(text)
    if ms is None:
        raise click.BadParameter(f"{text}: write a duration, such as 90s or 5min, or none.")
    return ms


def _count_in(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int] | None:
    if text == "none":
        return None
    count, _, window = text.partition("/")
    ms = milliseconds(window)
    if not re.fullmatch(r"\d+", count) or not ms:
        raise click.BadParameter(f"{text}: write a number and a duration, such as 10/10min, or none.")
    return int(count), ms


def monitoring_options(command: F) -> F:
    """Add the options for metrics and alerts, passed as the parameter `monitoring`."""

    @click.option("--metrics-port", type=click.IntRange(0, 65535),
                  help="Serve metrics for Prometheus at this port; 0 chooses a free one.")  # fmt: skip
    @click.option("--metrics-host", default="localhost", show_default=True, metavar="HOST",
                  help="Address at which metrics are served.")  # fmt: skip
    @click.option("--webhook", "webhooks", multiple=True, metavar="URL",
                  help="POST each alert to this URL as JSON; may be repeated.")  # fmt: skip
    @click.option("--on-alert", "commands", multiple=True, metavar="COMMAND",
                  help="Run this command for each alert, with the JSON on its standard input; may be "
                  "repeated.")  # fmt: skip
    @click.option("--alert-rebalances", "rebalances", default="10/10min", show_default=True,
                  callback=_count_in, metavar="N/TIME",
                  help="Alert if a group has more than N rebalances within a time, or none.")  # fmt: skip
    @click.option("--alert-converge", "converge_ms", default="5min", show_default=True, callback=_duration,
                  metavar="TIME", help="Alert if a rebalance takes longer, or none.")  # fmt: skip
    @click.option("--alert-lag", "lag_ms", callback=_duration, metavar="TIME",
                  help="Alert if a group has not read a record for longer [default: none].")  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        *args: object, metrics_port: int | None, metrics_host: str, webhooks: tuple[str, ...],
        commands: tuple[str, ...], rebalances: tuple[int, int] | None, converge_ms: int | None,
        lag_ms: int | None, **kwargs: object,
    ) -> object:  # fmt: skip
        chosen = Monitoring(metrics_port, metrics_host, webhooks, commands, rebalances, converge_ms, lag_ms)
        return command(*args, monitoring=chosen, **kwargs)

    return wrapped  # type: ignore[return-value]


class Observer:
    """Passes the results of each poll to the metrics and to the targets of alerts. Does nothing without
    both."""

    def __init__(
        self, groups: Sequence[str] = (), limits: Limits | None = None,
        metrics: FollowerMetrics | None = None, firing: Firing | None = None,
        couriers: Sequence[Courier] = (),
    ) -> None:  # fmt: skip
        self._groups, self._limits = frozenset(groups), limits
        self._metrics, self._firing, self._couriers = metrics, firing, couriers
        self._advice: Mapping[tuple[str, str], Sequence[Advice]] = {}
        self._advised: tuple[object, float] = (None, 0.0)
        self._began = time.monotonic()

    def __repr__(self) -> str:
        return f"<observer with {len(self._couriers)} targets>"

    def begin(self) -> None:
        """Begin a poll."""
        self._began = time.monotonic()

    def source(self, name: str, is_up: bool) -> None:
        """Record whether a poll reached a source."""
        if self._metrics is not None:
            self._metrics.source(name, is_up)

    def poll(self, gold: Gold, ended: Sequence[Rebalance]) -> None:
        """Report a complete poll, with the rebalances that ended since the last one."""
        if self._firing is None or self._limits is None:
            return
        from konvene.pipeline.monitoring.alerts import alerts_of
        from konvene.pipeline.monitoring.current import current_groups

        now_ms = time.time_ns() // 1_000_000
        found = current_groups(gold, now_ms, self._advice_of(gold, now_ms) if self._couriers else None)
        found = [group for group in found if not self._groups or group.group_id in self._groups]
        messages = self._firing.update(alerts_of(found, now_ms, self._limits), now_ms)
        for courier in self._couriers:
            for message in messages:
                courier.put(message)
        if self._metrics is not None:
            took = time.monotonic() - self._began
            self._metrics.poll(found, ended, gold.damage, self._firing.keys, took)

    def _advice_of(self, gold: Gold, now_ms: int) -> Mapping[tuple[str, str], Sequence[Advice]]:
        from konvene.pipeline.answers import Selection, summarise

        newest = gold.rebalances[0].key if gold.rebalances else None
        state, now_s = (len(gold.rebalances), newest), time.monotonic()
        if state != self._advised[0] or now_s - self._advised[1] > ADVICE_EVERY_S:
            found: dict[tuple[str, str], list[Advice]] = defaultdict(list)
            for each in summarise(gold, Selection(since_ms=now_ms - ADVICE_WINDOW_MS)).advice:
                found[each.cluster, each.group].append(each)
            self._advice, self._advised = found, (state, now_s)
        return self._advice


@contextlib.contextmanager
def observing(monitoring: Monitoring, groups: Sequence[str], folder: Path) -> Iterator[Observer]:
    """Yield the observer of these options; end its server and its threads after the block.

    Alerts that are firing are kept in `folder`."""
    targets = _targets(monitoring)
    if not targets and monitoring.port is None:
        yield Observer()
        return
    from konvene.pipeline.monitoring.delivery import Courier
    from konvene.pipeline.monitoring.firing import Firing

    folder.mkdir(parents=True, exist_ok=True)
    firing = Firing(folder, [target.id for target in targets])
    couriers = [Courier(each, functools.partial(firing.delivered, each.id), note) for each in targets]
    with contextlib.ExitStack() as stack:
        metrics = _metrics(monitoring, stack)
        for courier in couriers:
            for message in firing.pending(courier.target.id):
                courier.put(message)
            courier.start()
            stack.callback(courier.stop)
        yield Observer(groups, monitoring.limits, metrics, firing, couriers)


def _targets(monitoring: Monitoring) -> list[Target]:
    from konvene.pipeline.monitoring.delivery import Command, Webhook

    found: list[Target] = []
    kinds: tuple[tuple[str, Callable[[str], Any], tuple[str, ...]], ...] = (
        ("--webhook", Webhook, monitoring.webhooks), ("--on-alert", Command, monitoring.commands)
    )  # fmt: skip
    for option, kind, values in kinds:
        for value in values:
            try:
                found.append(kind(value))
            except ValueError as error:
                raise click.BadParameter(f"{error}.", param_hint=option) from None
    return found


def _metrics(monitoring: Monitoring, stack: contextlib.ExitStack) -> FollowerMetrics | None:
    if monitoring.port is None:
        return None
    from konvene.pipeline.monitoring.metrics import FollowerMetrics, MetricsServer, is_installed

    if not is_installed():
        fail("metrics need prometheus-client, which is not installed", "pip install 'konvene[metrics]'")
    metrics = FollowerMetrics(time.time)
    try:
        server = MetricsServer(metrics, monitoring.host, monitoring.port)
    except OSError as error:
        fail(f"metrics cannot be served at {monitoring.host}:{monitoring.port}: {error.strerror or error}")
    stack.callback(server.close)
    note(f"Metrics at {server.url}.")
    return metrics
