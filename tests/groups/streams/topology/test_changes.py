"""The one-line description of the difference between two topologies."""

from __future__ import annotations

import pytest

from konvene.groups.streams.topology.changes import MAX_CHANGES, changes
from konvene.groups.streams.topology.topology import Topology
from konvene.sim.transcript.streams_commands import topology_of


def topology(text: str, epoch: int) -> Topology:
    return Topology.from_request(topology_of(text).replace(epoch=epoch))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("0:orders", "0:orders", "nothing else"),
        ("0:orders", "0:orders|1:sums", "+ subtopology 1"),
        ("0:orders|1:sums", "1:sums", "- subtopology 0"),
        ("0:orders", "0:sums!counts", "subtopology 0 + source sums, subtopology 0 - source orders, "
         "subtopology 0 + changelog counts"),
        ("0:orders", "0:orders>words|1:<words", "subtopology 0 + sink words, + subtopology 1"),
        ("0:orders>words|1:<words/4", "0:orders>words|1:<words/5", "subtopology 1 settings"),
        ("0:orders>words|1:<words", "0:orders>other|1:<other", "subtopology 0 + sink other, "
         "subtopology 0 - sink words, subtopology 1 + repartition topic other, "
         "subtopology 1 - repartition topic words"),
    ],
)  # fmt: skip
def test_changes_are_listed(before: str, after: str, expected: str) -> None:
    assert changes(topology(before, 0), topology(after, 1)) == f"epoch 0 to 1: {expected}"


def test_the_number_of_listed_changes_is_limited() -> None:
    many = "|".join(f"{n}:t{n}" for n in range(MAX_CHANGES + 3))
    line = changes(topology("0:t0", 4), topology(many, 5))
    assert line.startswith("epoch 4 to 5: + subtopology 1, ")
    assert (line.count("subtopology"), line[-12:]) == (MAX_CHANGES, ", and 2 more")
