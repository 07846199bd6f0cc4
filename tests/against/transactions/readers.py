"""Who reads what transactions wrote: a reader of each library that waits for commits, and one that does not.

A value belongs to a story by its first words.
"""

import itertools
from typing import Any

from ..clients import LIBRARIES, Client, Fleet, eventually
from ..conftest import java_is_missing

TOPIC = "ledger"
PARTITIONS = 2


def libraries() -> list[str]:
    return [name for name in LIBRARIES if name != "java" or not java_is_missing()]


class Readers:
    def __init__(self, fleet: Fleet, admin: Client) -> None:
        self.admin = admin
        self.fleet = fleet
        admin.call("create_topics", topics=[{"name": TOPIC, "partitions": PARTITIONS}])
        assigned = [[TOPIC, partition] for partition in range(PARTITIONS)]
        self.patient = [
            fleet.consumer(library, f"patient-{library}", assign=assigned, isolation_level="read_committed")
            for library in libraries()
        ]
        self.hasty = fleet.consumer("confluent-kafka", "hasty", assign=assigned)
        self._marks = itertools.count(1)
        self.plain = fleet.producer("confluent-kafka", "plain", idempotence=True)

    def write(self, *records: tuple[int, str]) -> list[list[Any]]:
        """Outside of any transaction; what became of each, as `[topic, partition, offset, timestamp]`."""
        return write(self.plain, *records)

    def all_see(self, prefix: str, wanted: set[str]) -> None:
        """Wait until every patient reader has read exactly these of the values that begin so, each once."""
        for reader in self.patient:
            seen = self._seen_by(reader, prefix, wanted)
            assert (reader.library, sorted(seen)) == (reader.library, sorted(wanted))

    def hasty_sees(self, prefix: str, wanted: set[str]) -> None:
        assert sorted(self._seen_by(self.hasty, prefix, wanted)) == sorted(wanted)

    @staticmethod
    def _seen_by(reader: Client, prefix: str, wanted: set[str]) -> list[str]:
        def seen() -> list[str]:
            return [value for value in reader.values() if f"{value} ".startswith(f"{prefix} ")]

        eventually(f"{wanted} by {reader}", lambda: wanted <= set(seen()), 20, among=[reader])
        return seen()

    def none_sees(self, prefix: str) -> None:
        """A later record, outside of any transaction, has passed them all, and this has not."""
        mark = f"mark {next(self._marks)}"
        self.write(*((partition, f"{mark} {partition}") for partition in range(PARTITIONS)))
        self.all_see(mark, {f"{mark} {partition}" for partition in range(PARTITIONS)})
        self.all_see(prefix, set())


def write(producer: Client, *records: tuple[int, str]) -> list[list[Any]]:
    rows = [{"topic": TOPIC, "partition": p, "key": value, "value": value} for p, value in records]
    acknowledgements: list[list[Any]] = producer.call("send", records=rows)
    return acknowledgements
