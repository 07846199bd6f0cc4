"""A secured broker is killed in the middle of a group and of transactions: users and rights survive, clients
log in again and continue, and nothing acknowledged is lost."""

from collections.abc import Callable
from pathlib import Path

from ..clients import eventually, fleet_of
from ..conftest import java_is_missing
from ..stories import OUTLIVES_ITS_BROKER, gaps, steps_back
from ..transactions.test_copies import FROM, GROUP, OUTLIVES_MS, PARTITIONS, TO, Copiers, Kind, read
from .cluster import secured_cluster

KILLS = 2
RATE_PER_S = 60
WITHIN_S = 60
MEMBERS = ("kafka-python", "aiokafka")
RIGHTS = {
    "writer": (f"WRITE topic:{FROM}",),
    "reader": (f"READ topic:{FROM}", "READ group:readers"),
    "copier": (
        f"READ topic:{FROM}", f"READ group:{GROUP}", f"WRITE topic:{TO}", "WRITE transactional-id:copier-*",
    ),
}  # fmt: skip


def test_kills_lose_no_record_user_or_right(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with (
        secured_cluster(tmp_path / "cluster") as cluster,
        fleet_of(cluster.broker.bootstrap, tmp_path / "clients") as fleet,
    ):
        cluster.create_topics(FROM, TO, partitions=PARTITIONS)
        cluster.add_users(*RIGHTS)
        for user, rights in RIGHTS.items():
            cluster.allow(user, *rights)
        libraries = ["confluent-kafka"] + ["java"] * (not java_is_missing())
        kinds = [Kind(library, cluster.scram("copier").of(library)) for library in libraries]
        copiers = Copiers(fleet, kinds, OUTLIVES_MS[cluster.broker.name])
        fields = {"group": "readers", "topics": [FROM], "commit": "sync", "session_timeout_ms": 25_000}
        members = [
            fleet.consumer(library, **fields, **OUTLIVES_ITS_BROKER, **cluster.scram("reader").of(library))
            for library in MEMBERS
        ]
        source = fleet.producer(
            "confluent-kafka", "source", idempotence=True, **cluster.scram("writer").of("confluent-kafka")
        )
        source.call("stream", topic=FROM, prefix="", count=10**6, rate_per_s=RATE_PER_S)

        for kill in range(KILLS + 1):
            before = [len(member.records()) for member in members]
            copied = len([c for copier in copiers.all for c in copier.of("copied")])

            def progress(before: list[int] = before, copied: int = copied) -> bool:
                copiers.supervise()
                now = len([c for copier in copiers.all for c in copier.of("copied")])
                return now > copied and all(
                    len(member.records()) > count for member, count in zip(members, before, strict=True)
                )

            eventually(f"progress after kill {kill}", progress, WITHIN_S, among=[*members, *copiers.living])
            if kill < KILLS:
                cluster.broker.kill9()
                cluster.broker.start()

        totals = source.call("settle", within_s=WITHIN_S)
        assert totals["failed"] == 0
        written = read(fleet, "kafka-python", FROM, totals["acked"])
        assert sorted(int(v) for values in written.values() for v in values) == list(range(totals["acked"]))
        assert read(fleet, "aiokafka", TO, totals["acked"], copiers) == written
        everything = {value for values in written.values() for value in values}
        eventually(
            "every record",
            lambda: everything <= {value for member in members for value in member.values()},
            WITHIN_S,
            among=members,
        )
        assert (gaps(members), steps_back(members)) == ([], [])
        record_property("values copied", totals["acked"])
