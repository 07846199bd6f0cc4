"""The applications that simulated members of streams groups run: a small catalogue of topologies.

    stateless   reads `orders`
    stateful    reads `orders`, and keeps state in a changelog
    chain       repartitions `orders` twice; the end of the chain keeps state
    two         two subtopologies that know nothing of each other, one of them with state
    joined      repartitions `orders` and `extra`, which do not have as many partitions, and joins them

Each group has internal topics of its own, named as Kafka Streams names them.
"""

from __future__ import annotations

from konvene.client.streams_tasks import InternalTopic, Subtopology, Topology

ORDERS, EXTRA = "orders", "extra"
NAMES = ("stateless", "stateful", "chain", "two", "joined")


def topology_of(name: str, group: str) -> Topology:
    """That of the catalogue, for the application of this group. Raises KeyError."""

    def changelog(store: str) -> tuple[InternalTopic, ...]:
        return (InternalTopic(f"{group}-{store}-changelog", configs={"cleanup.policy": "compact"}),)

    words, lines = f"{group}-words-repartition", f"{group}-lines-repartition"
    parts: dict[str, tuple[Subtopology, ...]] = {
        "stateless": (Subtopology("0", (ORDERS,)),),
        "stateful": (Subtopology("0", (ORDERS,), state_changelog_topics=changelog("counts")),),
        "chain": (
            Subtopology("0", (ORDERS,), (lines,)),
            Subtopology("1", (), (words,), repartition_source_topics=(InternalTopic(lines),)),
            Subtopology("2", (), (), changelog("counts"), (InternalTopic(words),)),
        ),
        "two": (
            Subtopology("0", (ORDERS,), state_changelog_topics=changelog("counts")),
            Subtopology("1", (EXTRA,)),
        ),
        "joined": (
            Subtopology("0", (ORDERS,), (lines,)),
            Subtopology("1", (EXTRA,), (words,)),
            Subtopology(
                "2", (), (), changelog("joined"), (InternalTopic(lines), InternalTopic(words)),
                (frozenset((lines, words)),),
            ),
        ),
    }  # fmt: skip
    return Topology(parts[name])


def is_internal(topic: str) -> bool:
    """Whether a coordinator made it, by its name."""
    return topic.endswith(("-changelog", "-repartition"))
