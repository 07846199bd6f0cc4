"""Range: the partitions of each topic in one row, cut into pieces for its subscribers, who stand in one row
too.

Topics with as many partitions and the same readers are cut alike: whoever reads partition 3 of one reads
partition 3 of the other, which is what a join of two streams needs. What members had before does not matter;
only names do. Static members stand first, in the order of their instance ids, so that they find their piece
again after a restart.

The order is Java's, which compares UTF-16: it differs from ours where a name goes beyond the basic plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    Partitions,
    SubscriptionType,
    partitions_of,
)

__all__ = ["assign"]


def assign(spec: GroupSpec) -> GroupAssignment:
    """A piece of each topic for each of its subscribers; exactly Kafka's answer."""
    if not spec.members:
        return {}
    order = standing(spec.members)
    if spec.subscription_type is SubscriptionType.HOMOGENEOUS:
        return _all_alike(order, partitions_of(spec, sorted(spec.members[order[0]].subscribed)))
    return _each_topic(spec, order)


def standing(members: Mapping[str, MemberSpec]) -> list[str]:
    """Member ids in their order: static members by instance id, then the others by member id."""
    instances = {name: of.instance_id for name, of in members.items() if of.instance_id is not None}
    others = (name for name in members if name not in instances) if instances else members
    by_name = _in_java_order(instances.values())
    static = sorted(instances, key=lambda name: (by_name(instances[name]), name))
    return static + sorted(others, key=None if _plain(members) else _in_java_order(members))


def _plain(names: Iterable[str]) -> bool:
    return all(map(str.isascii, names))


def _in_java_order(names: Iterable[str]) -> Callable[[str], str | bytes]:
    """What to sort these names by."""
    return str if _plain(names) else lambda name: name.encode("utf-16-be", "surrogatepass")


def _all_alike(order: list[str], counts: Mapping[Uuid, int]) -> GroupAssignment:
    """Everybody reads everything: topics with as many partitions are cut once for all of them.

    Beyond the last partition of the largest topic there is nothing to give; those members cost nothing.
    """
    alike: dict[int, list[Uuid]] = {}
    for topic, count in counts.items():
        alike.setdefault(count, []).append(topic)
    given: dict[str, MemberAssignment] = dict.fromkeys(order, NOTHING)
    pieces = {count: _pieces(count, len(order)) for count in sorted(alike)}
    for at, member in enumerate(order[: max(alike, default=0)]):
        mine: dict[Uuid, Partitions] = {}
        for count, cut in pieces.items():
            if at < len(cut):
                mine.update(dict.fromkeys(alike[count], cut[at]))
        given[member] = mine
    return given


def _each_topic(spec: GroupSpec, order: list[str]) -> GroupAssignment:
    """Subscribers differ from topic to topic; members who subscribe alike are looked at once."""
    kinds: dict[frozenset[Uuid], list[int]] = {}
    for at, member in enumerate(order):
        kinds.setdefault(spec.members[member].subscribed, []).append(at)
    readers: dict[Uuid, list[list[int]]] = {}
    for subscribed, of_kind in kinds.items():
        for topic in subscribed:
            readers.setdefault(topic, []).append(of_kind)
    rows: dict[tuple[int, ...], list[int]] = {}
    given: list[dict[Uuid, Partitions]] = [{} for _ in order]
    for topic, count in partitions_of(spec, sorted(readers)).items():
        # The first reader of each kind identifies it.
        of_topic = tuple(of_kind[0] for of_kind in readers[topic])
        row = rows.get(of_topic)
        if row is None:
            row = rows[of_topic] = sorted(at for of_kind in readers[topic] for at in of_kind)
        for at, piece in zip(row, _pieces(count, len(row)), strict=False):
            given[at][topic] = piece
    return {member: mine or NOTHING for member, mine in zip(order, given, strict=True)}


def _pieces(partitions: int, readers: int) -> list[Partitions]:
    """Rows as equal as can be, the longer ones first; none that is empty."""
    row = tuple(range(partitions))
    each, longer = divmod(partitions, readers)
    ends = [(each + 1) * at for at in range(longer)]
    first = (each + 1) * longer
    pieces = [row[end : end + each + 1] for end in ends]
    if each:
        pieces += [row[start : start + each] for start in range(first, partitions, each)]
    return pieces
