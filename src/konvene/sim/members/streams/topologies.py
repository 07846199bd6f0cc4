"""The catalogue of topologies that simulated Kafka Streams applications run.

    stateless   reads `orders`
    stateful    reads `orders`, and keeps state in a changelog
    chain       repartitions `orders` twice; the last subtopology has state
    two         two independent subtopologies, one of them with state
    joined      repartitions `orders` and `extra`, which have different partition counts, and joins them

Each has later versions by topology epoch. Epoch 1 adds a state store to the first subtopology; epoch 2 adds a
subtopology, fed by a repartition topic of the last one; epoch 3 removes it again.

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
    """Return the topology `name` of the catalogue for a group's application. Raises KeyError."""

    def changelog(store: str) -> tuple[InternalTopic, ...]:
        return (InternalTopic(f"{group}-{store}-changelog", configs={"cleanup.policy": "compact"}),)

    words, lines = f"{group}-words-repartition", f"{group}-lines-repartition"
    subtopologies: dict[str, Parts] = {
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
    return Topology(_evolved(subtopologies[name], group, changelog, epoch), epoch)


def _evolved(
    subtopologies: tuple[Subtopology, ...],
    group: str,
    changelog: Callable[[str], tuple[InternalTopic, ...]],
    epoch: int,
) -> tuple[Subtopology, ...]:
    """Return a topology's subtopologies with the changes of the topology epochs up to `epoch`.

    `changelog` makes the changelog of an added state store from the store's name."""
    if epoch > 0:
        first = subtopologies[0]
        more = (*first.state_changelog_topics, *changelog("more"))
        subtopologies = (first._replace(state_changelog_topics=more), *subtopologies[1:])
    if epoch == 2:
        name = f"{group}-next-repartition"
        *before, last = subtopologies
        sinks = (*last.repartition_sink_topics, name)
        new = Subtopology(str(len(subtopologies)), (), (), changelog("next"), (InternalTopic(name),))
        subtopologies = (*before, last._replace(repartition_sink_topics=sinks), new)
    return subtopologies


def is_internal(topic: str) -> bool:
    """Return True if the name is that of an internal topic."""
    return topic.endswith(("-changelog", "-repartition"))
