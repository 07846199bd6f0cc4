"""The records that consumer, share and streams groups have in common: their tombstones and their replay.

Each of these types keeps five kinds of records, under keys of its own:

    group metadata        the group's epoch and its inputs             tombstone: the group is deleted
    member metadata       what a member subscribes to                  tombstone: the member is removed
    assignment metadata   the epoch of the target assignment           tombstone: there is no assignment
    target assignment     the target of one member                     tombstone: the target is empty
    current assignment    the assignment that one member has           tombstone: the assignment is empty

A log may be compacted up to any point, even while it is being read. Replay therefore does not rely on earlier
records: a record of an unknown member creates the member, a tombstone of an unknown member changes nothing,
and a record replaces a group of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from konvene.codec.schema import Struct
from konvene.groups.modern.group import FIRST_EPOCH, Member, ModernGroup
from konvene.records.coordinator import Record

G = TypeVar("G", bound=ModernGroup[Any])

Groups = MutableMapping[str, Any]
"""All groups of a shard, of any type, by group id."""

Replay = Callable[[Groups, Any, Any], None]
"""A function that applies a record's key and value to its group; the value of a tombstone is None."""


def read_epoch(group: ModernGroup[Any], value: EpochValue) -> None:
    """Set a group's epoch and metadata hash from the value of its record."""
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


class EpochValue(Protocol):
    """The value of the group-metadata record of a consumer or share group."""

    @property
    def epoch(self) -> int: ...

    @property
    def metadata_hash(self) -> int: ...


class GroupKey(Protocol):
    """The key of a record of a group."""

    @property
    def group_id(self) -> str: ...


class MemberKey(GroupKey, Protocol):
    """The key of a record of a member."""

    @property
    def member_id(self) -> str: ...


class AssignedUnits(Protocol):
    """The partitions or tasks of one topic or subtopology in a current-assignment record."""

    @property
    def partitions(self) -> tuple[int, ...]: ...

    @property
    def assignment_epochs(self) -> tuple[int, ...] | None: ...


def assignment_epochs(units: AssignedUnits, member_epoch: int) -> dict[int, int]:
    """Return, by partition number, the epoch in which each partition or task was assigned.

    `units`: the entry of a record for one topic or subtopology. Consumer groups before Kafka 4.3 and streams
    groups before 4.2 wrote no such epochs: then the member's epoch is returned for each."""
    epochs = units.assignment_epochs
    if epochs is None or len(epochs) != len(units.partitions):
        return dict.fromkeys(units.partitions, member_epoch)
    return dict(zip(units.partitions, epochs, strict=True))


Write = Callable[[G, Any, Any], None]
"""A function that applies a record's key and value to its group."""

Clear = Callable[[G, Any], None]
"""A function that applies the key of a tombstone to its group."""


@dataclass(frozen=True, slots=True)
class RecordTypes(Generic[G]):
    """The record types of one type of group, with the functions that write and replay them."""

    group_class: type[G]
    group_key: type
    member_key: type
    assignment_key: type
    assignment_value: type
    target_key: type
    current_key: type
    member_record: Callable[[str, Any], Record]
    """Return the record of a member's metadata; parameters: group id, member."""
    target_record: Callable[[str, str, Any], Record]
    """Return the record of a target assignment; parameters: group id, member id, target."""
    current_record: Callable[[str, str, Any], Record]
    """Return the record of a current assignment; parameters: group id, member id, current assignment."""
    read_group: Callable[[G, Any], None]
    """Set the fields of the group that are in its metadata record."""
    read_member: Callable[[str, Any, Any], Member]
    """Return a member; parameters: member id, value of its metadata record, current assignment."""
    read_target: Callable[[Any], Any]
    read_current: Callable[[Any], Any]
    new_member: Callable[[str], Member]
    """Return a member of which only the id is known."""
    departed: Any
    """The current assignment of a member whose current-assignment record was deleted."""
    other_keys: Callable[[G], Iterable[Struct]]
    """Return the keys whose tombstones delete the group, to be written after those of its members."""
    other_records: Mapping[type, tuple[Write[G], Clear[G]]] = field(default_factory=dict)
    """Replay functions of records that only this type of group has, for values and tombstones, by key
    class."""
    ignored_keys: tuple[type, ...] = ()
    """Keys of records that are not replayed."""
    replays: dict[type, Replay] = field(init=False)
    """The replay functions of all records of the type, by the class of their key."""

    def __post_init__(self) -> None:
        replays: dict[type, Replay] = dict.fromkeys(self.ignored_keys, lambda groups, key, value: None)
        replays |= self._common_replays()
        replays |= {key: self._replay_as(write, clear) for key, (write, clear) in self.other_records.items()}
        object.__setattr__(self, "replays", replays)

    def assignment_record(self, group_id: str, epoch: int, timestamp_ms: int) -> Record:
        """Return the record of the assignment epoch: targets were computed for this epoch at this time."""
        value = self.assignment_value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return Record(self.assignment_key(group_id=group_id), value)

    def member_tombstones(self, group_id: str, member_id: str) -> list[Record]:
        """Return the tombstones that remove a member, in Kafka's order."""
        keys = (self.current_key, self.target_key, self.member_key)
        return [Record(key(group_id=group_id, member_id=member_id), None) for key in keys]

    def group_tombstones(self, group: G, replaced: tuple[str, str] | None = None) -> list[Record]:
        """Return the tombstones that delete a group, in Kafka's order: its members, then the group.

        `replaced`: the old and the new id of a static member that has just rejoined under another id. The
        tombstones have the new one, since the caller has written those of the old one."""
        group_id, members = group.group_id, list(group.members)
        if replaced is not None:
            old, new = replaced
            members = [new if member == old else member for member in members]
        keys: list[Struct] = [
            *(self.current_key(group_id=group_id, member_id=member) for member in members),
            *(self.target_key(group_id=group_id, member_id=member) for member in members),
            self.assignment_key(group_id=group_id),
            *(self.member_key(group_id=group_id, member_id=member) for member in members),
            *self.other_keys(group),
        ]
        return [Record(key, None) for key in keys]

    # --- replay ---

    def replay(self, groups: Groups, record: Record) -> None:
        """Apply a record to its group."""
        self.replays[type(record.key)](groups, record.key, record.value)

    def _replay_as(self, write: Write[G], clear: Clear[G]) -> Replay:
        """Return a function that replays the records of one kind.

        For a record with a value it calls `write`, after creating the group if necessary; for a tombstone it
        calls `clear`, if the group exists."""
        group_class = self.group_class

        def replay(groups: Groups, key: GroupKey, value: object) -> None:
            group = groups.get(key.group_id)
            if value is not None:
                if not isinstance(group, group_class):
                    group = groups[key.group_id] = group_class(key.group_id)
                write(group, key, value)
            elif isinstance(group, group_class):
                clear(group, key)

        return replay

    def _common_replays(self) -> dict[type, Replay]:
        """Return the replay functions of the five common kinds of records, by the class of their key."""
        return {
            self.group_key: self._replay_group,
            self.member_key: self._replay_as(
                self._write_member, lambda group, key: group.drop(key.member_id)
            ),
            self.assignment_key: self._replay_as(
                lambda group, key, value: group.set_assignment_epoch(
                    value.assignment_epoch, value.assignment_timestamp
                ),
                lambda group, key: group.set_assignment_epoch(FIRST_EPOCH, 0),
            ),
            self.target_key: self._replay_as(
                self._write_target, lambda group, key: group.targets.pop(key.member_id, None)
            ),
            self.current_key: self._replay_as(self._write_current, self._clear_current),
        }

    def _replay_group(self, groups: Groups, key: GroupKey, value: object) -> None:
        group = groups.get(key.group_id)
        if value is not None:
            if not isinstance(group, self.group_class):
                group = groups[key.group_id] = self.group_class(key.group_id)
            self.read_group(group, value)
        elif isinstance(group, self.group_class):
            del groups[key.group_id]

    def _write_member(self, group: G, key: MemberKey, value: object) -> None:
        member_id = key.member_id
        known = group.members.get(member_id) or self.new_member(member_id)
        group.put(self.read_member(member_id, value, known.current))

    def _write_target(self, group: G, key: MemberKey, value: object) -> None:
        group.targets[key.member_id] = self.read_target(value)

    def _write_current(self, group: G, key: MemberKey, value: object) -> None:
        member = group.members.get(key.member_id)
        if member is not None:
            group.set_current(member, member.having(self.read_current(value)))
        else:
            group.put(self.new_member(key.member_id).having(self.read_current(value)))

    def _clear_current(self, group: G, key: MemberKey) -> None:
        member = group.members.get(key.member_id)
        if member is not None:
            group.set_current(member, member.having(self.departed))
