"""`konvene explain follow`: read logs again and again, ahead of the cleaner; tell each rebalance as it ends.

Kafka compacts the log of its coordinators: what is not read in time is gone. A follower keeps every record in
its warehouse. It ends well on Ctrl-C and SIGTERM: what is under way is finished or has not happened, and the
next one goes on from there.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.explain.show import print_documents, print_rebalance
from konvene.cli.explain.warehouse import (
    Work,
    brokers_and_paths,
    costs_of,
    has_logs,
    ingest_and_build,
    logs_argument,
    open_warehouse,
    spool_of,
    telling_failures,
    work_options,
)
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.pipeline.answers import Gold, Rebalance
    from konvene.pipeline.sources.live import LiveReader
    from konvene.pipeline.warehouse.warehouse import Warehouse


@click.command()
@logs_argument(required=True)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only of this group. Repeatable.")
@click.option("--interval", default=5.0, show_default=True, type=click.FloatRange(0.1), metavar="SECONDS",
              help="Between two looks.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each rebalance, each on a line."
)
@work_options
def follow(
    logs: tuple[str, ...], groups: tuple[str, ...], interval: float, as_json: bool, work: Work
) -> None:
    """Follow logs that grow, and tell of each rebalance when it is over.

    What was over before is read, and not told. Ctrl-C ends it.

    \b
    konvene explain follow localhost:9092 --warehouse tables
    konvene explain follow /var/kafka --warehouse tables --group orders-app --json
    """
    if work.warehouse is None:
        raise click.UsageError("say with --warehouse DIR where to keep what is read.")
    stop = threading.Event()
    with telling_failures(logs, audit=work.audit), _until(stop), open_warehouse(work) as warehouse:
        brokers, paths = brokers_and_paths(logs)
        with contextlib.ExitStack() as stack:
            readers = [_live(stack, warehouse, broker) for broker in brokers]
            _follow(warehouse, paths, readers, groups, work, stop, interval, as_json)


class _Live:
    """A live broker that may be away for a while."""

    def __init__(self, reader: LiveReader, broker: str, directory: Path) -> None:
        self.directory = directory
        self._reader, self._broker = reader, broker
        self._was_there = False
        self._is_away = False

    def catch_up(self) -> None:
        """Fetch what there is. That it cannot be reached is told once, and is an error only at first."""
        from konvene.client.errors import ClientError

        try:
            self._reader.catch_up()
        except ClientError as error:
            if not self._was_there:
                raise
            if not self._is_away:
                note(f"{error}; trying again.")
            self._is_away = True
        else:
            if self._is_away:
                note(f"{self._broker} is back.")
            self._was_there, self._is_away = True, False


def _live(stack: contextlib.ExitStack, warehouse: Warehouse, broker: str) -> _Live:
    from konvene.pipeline.sources.live import LiveReader

    directory = spool_of(warehouse, broker)
    return _Live(stack.enter_context(LiveReader(broker, directory)), broker, directory)


@contextlib.contextmanager
def _until(stop: threading.Event) -> Iterator[None]:
    """Signals say when to stop; a second one does not wait."""

    def told(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {each: signal.signal(each, told) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _follow(
    warehouse: Warehouse, paths: Sequence[str], readers: Sequence[_Live], groups: tuple[str, ...],
    work: Work, stop: threading.Event, interval: float, as_json: bool,
) -> None:  # fmt: skip
    teller = _Teller(warehouse, groups, as_json)
    while True:
        for reader in readers:
            reader.catch_up()
        there = [*paths, *(str(reader.directory) for reader in readers if has_logs(reader.directory))]
        if there:
            ingest_and_build(warehouse, there, work, quiet=teller.began)
        teller.look()
        if stop.wait(interval):
            return


class _Teller:
    """Tells of each rebalance once, when it is over; of those that were over at first, how many."""

    def __init__(self, warehouse: Warehouse, groups: tuple[str, ...], as_json: bool) -> None:
        self.began = False
        self._warehouse, self._groups, self._as_json = warehouse, groups, as_json
        self._told: set[tuple[Any, ...]] = set()
        self._early: set[tuple[Any, ...]] = set()

    def look(self) -> None:
        from konvene.pipeline.answers import Gold, Selection

        gold = Gold(warehouse=self._warehouse)
        over = [each for each in reversed(gold.select(Selection(self._groups))) if _is_over(each)]
        if self.began:
            self._tell(
                gold, [each for each in over if each.place not in self._told and not self._waits(each)]
            )
        else:
            self.began = True
            note(f"Following; {len(over):,} rebalances were over before.")
            self._told = {each.place for each in over}

    def _waits(self, rebalance: Rebalance) -> bool:
        """An audit is written after the records that it explains: its row may come with the next look."""
        if rebalance.evidence == "observed" or not self._warehouse.files("audit_event"):
            return False
        if rebalance.place in self._early:
            return False
        self._early.add(rebalance.place)
        return True

    def _tell(self, gold: Gold, new: Sequence[Rebalance]) -> None:
        costs = costs_of(gold, new)
        if self._as_json:
            print_documents(new, costs)
        else:
            for each in new:
                print_rebalance(each, costs.get(each.place))
        sys.stdout.flush()
        self._told |= {each.place for each in new}
        self._early -= self._told


def _is_over(rebalance: Rebalance) -> bool:
    return rebalance.converged or rebalance.superseded_by is not None or rebalance.state == "Empty"
