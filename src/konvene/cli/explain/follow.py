"""`konvene explain follow`: poll logs ahead of compaction, and print each rebalance when it ends.

Kafka compacts the log of its coordinators; a follower keeps every record that it has read in its warehouse.
Ctrl-C and SIGTERM end it with exit code 0: the current poll is completed, or has no effect, and the next run
continues from there. Without `--warehouse` everything is in a temporary directory, which is deleted at the
end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.explain.broker_log import broker_log_of, broker_log_options
from konvene.cli.explain.damage import DamageNotes
from konvene.cli.explain.monitoring import Monitoring, Observer, monitoring_options, observing
from konvene.cli.explain.show import print_documents, print_rebalance
from konvene.cli.explain.warehouse import (
    Work,
    brokers_and_paths,
    costs_of,
    evidence_of,
    has_logs,
    ingest_and_build,
    logs_argument,
    open_warehouse,
    reporting_failures,
    spool_of,
    work_options,
)
from konvene.cli.output import note
from konvene.plurals import counted
from konvene.runtime.signals import stop_on_signal

if TYPE_CHECKING:
    from konvene.pipeline.answers import Gold, Rebalance
    from konvene.pipeline.answers.broker_log.evidence import BrokerLog
    from konvene.pipeline.answers.cost import Key as CostKey
    from konvene.pipeline.answers.observations.evidence import Observations
    from konvene.pipeline.sources.group_polls import GroupPoller
    from konvene.pipeline.sources.live import LiveReader
    from konvene.pipeline.warehouse.warehouse import Warehouse


@click.command()
@logs_argument(required=True)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@click.option("--interval", default=5.0, show_default=True, type=click.FloatRange(0.1), metavar="SECONDS",
              help="Time between two polls.")  # fmt: skip
@click.option("--no-describe", is_flag=True,
              help="Do not describe the groups of live brokers, which settles causes that the records leave "
              "open.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each rebalance, each on a line."
)
@monitoring_options
@work_options
@broker_log_options
def follow(
    logs: tuple[str, ...], groups: tuple[str, ...], interval: float, no_describe: bool, as_json: bool,
    work: Work, monitoring: Monitoring,
) -> None:  # fmt: skip
    """Follow growing logs, and print each rebalance when it ends.

    Rebalances that ended before are read but not printed. Ctrl-C ends it. --warehouse keeps what was read,
    and the next run continues from there; without it, everything is read again.

    \b
    konvene explain follow localhost:9092
    konvene explain follow /var/kafka --warehouse tables --group orders-app --json
    """
    stop = threading.Event()
    with reporting_failures(logs, audit=work.audit), stop_on_signal(stop), open_warehouse(work) as warehouse:
        brokers, paths = brokers_and_paths(logs)
        with contextlib.ExitStack() as stack:
            observer = stack.enter_context(observing(monitoring, groups, warehouse.path))
            described = None if no_describe else groups
            readers = [_live(stack, warehouse, broker, work, described) for broker in brokers]
            _follow(warehouse, paths, readers, groups, work, stop, interval, as_json, observer)


class _Live:
    """A connection to a live broker, which fetches its logs and tolerates outages after the first contact."""

    def __init__(
        self, reader: LiveReader, broker: str, directory: Path, poller: GroupPoller | None = None
    ) -> None:
        self.directory = directory
        self._reader, self.broker, self._poller = reader, broker, poller
        self._was_reachable = False
        self._is_unreachable = False

    def catch_up(self) -> bool:
        """Fetch the broker's new records into `directory`, and describe its groups; return False if the
        broker is unreachable.

        If the broker is unreachable at the first call, raises; later prints a note, once per outage, so that
        the next call tries again.
        """
        from konvene.client.errors import ClientError

        try:
            self._reader.catch_up()
        except ClientError as error:
            if not self._was_reachable:
                raise
            if not self._is_unreachable:
                note(f"{error}; retrying.")
            self._is_unreachable = True
        else:
            if self._is_unreachable:
                note(f"{self.broker} is reachable again.")
            self._was_reachable, self._is_unreachable = True, False
            if self._poller is not None:
                for text in self._reader.describe_groups(self._poller):
                    note(text)
        return not self._is_unreachable


def _live(
    stack: contextlib.ExitStack, warehouse: Warehouse, broker: str, work: Work,
    described: Sequence[str] | None,
) -> _Live:  # fmt: skip
    """Open a connection to a broker; `described` are the groups to describe (empty: all), None for none."""
    from konvene.pipeline.answers.observations.evidence import OBSERVATIONS_NAME
    from konvene.pipeline.sources.group_polls import GroupPoller
    from konvene.pipeline.sources.live import LiveReader

    directory = spool_of(warehouse, broker)
    reader = LiveReader(broker, directory, settings=work.client_settings)
    poller = None if described is None else GroupPoller(directory / OBSERVATIONS_NAME, described)
    return _Live(stack.enter_context(reader), broker, directory, poller)


def _follow(
    warehouse: Warehouse, paths: Sequence[str], readers: Sequence[_Live], groups: tuple[str, ...],
    work: Work, stop: threading.Event, interval: float, as_json: bool, observer: Observer,
) -> None:  # fmt: skip
    from konvene.pipeline.warehouse.warehouse import Conflict

    followed = [reader.directory for reader in readers]
    evidence = evidence_of(broker_log_of(work), warehouse, paths, followed)
    printer = _Printer(warehouse, groups, as_json, work.cluster, evidence)
    while True:
        observer.begin()
        for reader in readers:
            observer.source(reader.broker, reader.catch_up())
        found = [*paths, *(str(reader.directory) for reader in readers if has_logs(reader.directory))]
        if found:
            try:
                ingest_and_build(warehouse, found, work, quiet=printer.began)
            except Conflict as error:
                if not printer.began:
                    raise
                note(f"{error}; retrying.")
        observer.poll(*printer.poll())
        if stop.wait(interval):
            return


class _Printer:
    """Printer of rebalances: each is printed once, when it has ended. Of those that had ended before the
    first poll only the number is printed."""

    def __init__(
        self, warehouse: Warehouse, groups: tuple[str, ...], as_json: bool, cluster: str = "",
        evidence: Sequence[BrokerLog | Observations] = (),
    ) -> None:  # fmt: skip
        self.began = False
        self._evidence = tuple(evidence)
        self._warehouse, self._groups, self._as_json = warehouse, groups, as_json
        self._cluster = cluster
        self._printed: set[CostKey] = set()
        self._early: dict[CostKey, Rebalance] = {}
        """Rebalances that ended and are printed after the next poll."""
        self._read: set[str] = set()
        """Files of rebalances that were read."""
        self._caveats: set[str] = set()
        self._damage = DamageNotes(groups)

    def poll(self) -> tuple[Gold, list[Rebalance]]:
        """Print what is new; return the tables, and the rebalances that were printed."""
        from konvene.pipeline.answers import Gold, Selection

        for each in self._evidence:
            each.refresh()
        cluster = self._cluster or None
        gold = Gold(warehouse=self._warehouse, cluster=cluster, evidence=self._evidence)
        self._damage.poll(gold)
        changed = gold.select_changed(Selection(self._groups), self._read)
        ended = [each for each in reversed(changed) if _has_ended(each)]
        new: list[Rebalance] = []
        if self.began:
            read_again = {(each.cluster, each.group_id) for each in changed}
            waiting = [e for e in self._early.values() if (e.cluster, e.group_id) not in read_again]
            waiting = [*map(gold.settled, waiting), *(e for e in ended if e.key not in self._printed)]
            new = [each for each in waiting if not self._awaits_audit(each)]
            new.sort(key=lambda each: (each.at_ms, each.to_epoch))
            if new:
                self._print(gold, new)
        else:
            self.began = True
            note(f"Following; {counted(len(ended), 'rebalance')} ended before.")
            self._printed = {each.key for each in ended}
        return gold, new

    def _awaits_audit(self, rebalance: Rebalance) -> bool:
        """Return True if a rebalance should be printed after the next poll, which may bring its audit record.

        That is the case at the first call for a rebalance that is inferred from group records, if the logs
        have audit records: the audit record is written later than the group records.
        """
        if rebalance.evidence == "observed" or not self._warehouse.files("audit_event"):
            return False
        if rebalance.key in self._early:
            return False
        self._early[rebalance.key] = rebalance
        return True

    def _print(self, gold: Gold, new: Sequence[Rebalance]) -> None:
        from konvene.pipeline.answers import caveats

        costs = costs_of(gold, new)
        if self._as_json:
            print_documents(new, costs, gold.damaged)
        else:
            several_clusters = len(gold.clusters) > 1
            for each in new:
                print_rebalance(each, costs.get(each.key), with_cluster=several_clusters)
            for text in caveats(new):
                if text not in self._caveats:
                    self._caveats.add(text)
                    note(text)
        sys.stdout.flush()
        self._printed |= {each.key for each in new}
        self._early = {key: each for key, each in self._early.items() if key not in self._printed}


def _has_ended(rebalance: Rebalance) -> bool:
    return rebalance.converged or rebalance.superseded_by is not None or rebalance.state == "Empty"
