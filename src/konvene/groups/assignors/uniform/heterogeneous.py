"""The uniform assignor for members with different subscriptions: Kafka's algorithm, then improvements.

build     Kafka's algorithm, with members in the order of their ids (`builder`)
balance   moves along augmenting paths, which improve the balance where subscriptions overlap and for
          which Kafka does not search (`augmenting_paths`)
restore   partitions that moved needlessly go back to their previous owners
"""

from __future__ import annotations

from collections.abc import Sequence

from konvene.groups.assignors.contract import GroupAssignment, GroupSpec
from konvene.groups.assignors.uniform.augmenting_paths import follow_augmenting_paths, undo_needless_moves
from konvene.groups.assignors.uniform.builder import AssignmentBuilder

__all__ = ["assign", "build_as_kafka"]


def assign(spec: GroupSpec, order: Sequence[str]) -> GroupAssignment:
    """Return a balanced assignment, with few moves, of members with different subscriptions.

    `order`: of the members. At a tie, earlier ones receive partitions and later ones give.
    """
    builder = build_as_kafka(spec, order)
    follow_augmenting_paths(builder)
    undo_needless_moves(builder)
    return builder.assignment()


def build_as_kafka(spec: GroupSpec, order: Sequence[str]) -> AssignmentBuilder:
    """Return the builder after Kafka's algorithm, before any improvement.

    The assignment is Kafka's, if Kafka's hash maps yield the members in the order `order`.
    """
    builder = AssignmentBuilder(spec, order)
    builder.fill()
    builder.balance()
    return builder
