"""The applications that simulated members of streams groups run: a small catalogue of topologies.

    stateless   reads `orders`
    stateful    reads `orders`, and keeps state in a changelog
    chain       repartitions `orders` twice; the end of the chain keeps state
    two         two subtopologies that know nothing of each other, one of them with state
    joined      repartitions `orders` and `extra`, which do not have as many partitions, and joins them

Each has next topologies, by topology epoch: with 1 what had no state has some, and what had gets more; with 2
the last part writes to another one that comes with it; with 3 that one is gone again.

Each group has internal topics of its own, named as Kafka Streams names them.
"""

from __future__ import annotations

from collections.abc import Callable

from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology

ORDERS, EXTRA = "orders", "extra"
LAST_EPOCH = 3

Parts = tuple[Subtopology, ...]
NAMES = ("stateless", "stateful", "chain", "two", "joined")


def topology_of(name: str, group: str, epoch: int = 0) -> Topology:
    """That of the catalogue, for the application of this group. Raises KeyError."""

    def changelog(store: str) -> tuple[InternalTopic, ...]:
        return (InternalTopic(f"{group}-{store}-changelog", configs={"cleanup.policy": "compact"}),)

    words, lines = f"{group}-words-repartition", f"{group}-lines-repartition"
    parts: dict[str, Parts] = {
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
    return Topology(_next(parts[name], group, changelog, epoch), epoch)


def _next(
    parts: tuple[Subtopology, ...],
    group: str,
    changelog: Callable[[str], tuple[InternalTopic, ...]],
    epoch: int,
) -> tuple[Subtopology, ...]:
    """What becomes of them by that epoch."""
    if epoch > 0:
        first = parts[0]
        more = (*first.state_changelog_topics, *changelog("more"))
        parts = (first._replace(state_changelog_topics=more), *parts[1:])
    if epoch == 2:
        name = f"{group}-next-repartition"
        *before, last = parts
        sinks = (*last.repartition_sink_topics, name)
        new = Subtopology(str(len(parts)), (), (), changelog("next"), (InternalTopic(name),))
        parts = (*before, last._replace(repartition_sink_topics=sinks), new)
    return parts


def is_internal(topic: str) -> bool:
    """Whether a coordinator made it, by its name."""
    return topic.endswith(("-changelog", "-repartition"))
