"""Sessions that end every two seconds lose no record."""

from collections.abc import Callable
from pathlib import Path

from ..clients import fleet_of
from .cluster import secured_cluster
from .sessions import RATE_PER_S, SETTINGS, play


def test_short_sessions_lose_no_record(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Over three sessions of each connection, whether or not its client authenticates again."""
    with (
        secured_cluster(tmp_path / "cluster", SETTINGS) as cluster,
        fleet_of(cluster.broker.bootstrap, tmp_path / "clients") as fleet,
    ):
        outcome = play(cluster, fleet, ("confluent-kafka", "aiokafka"), 6 * RATE_PER_S)
    record_property("records", outcome.acked)
    record_property("errors", outcome.errors)
    assert not outcome.has_loss, outcome
