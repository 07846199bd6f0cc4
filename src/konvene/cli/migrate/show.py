"""Tables and JSON of `konvene migrate`: a row for each group with its blockers below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from konvene.cli.migrate.advice import ADVICE, Advice, advice_for
from konvene.cli.output import Table
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.groups.migration.dry_run import AssignmentChanges, DryRun, MemberPlan

__all__ = [
    "catalogue_document",
    "catalogue_tables",
    "document",
    "has_findings",
    "members_table",
    "releases",
    "table",
]

MAX_NAMED_MEMBERS = 3


def table(results: Sequence[DryRun], *, explain: bool) -> Table:
    """Return a table with a row for each group, and its blockers, notes and moves in lines below it.
    `explain` adds what to do about each."""
    columns = ["GROUP", "TYPE", "TO", "#MEMBERS", "PROTOCOL", "CAN-MIGRATE", "STAY", "MOVE", "NEW", "LOST"]
    rows = [
        [
            each.group_id, each.type, each.to, len(each.members), each.protocol,
            "yes" if each.can else "NO", *_counts(each.moves),
        ]
        for each in results
    ]  # fmt: skip
    return Table(columns, rows, (), [list(_details(each, explain)) for each in results])


def _counts(moves: AssignmentChanges | None) -> list[int | None]:
    return [None] * 4 if moves is None else [moves.stay, moves.move, moves.fresh, moves.lost]


def _details(result: DryRun, explain: bool) -> Iterator[str]:
    for blocker in result.blockers:
        yield f"blocked ({blocker.code}): {blocker.reason}{_members_of(result, blocker.member_ids)}"
        yield from _advice(result.to, blocker.code, explain)
    for remark in result.notes:
        yield f"note ({remark.code}): {remark.sentence}{_members_of(result, remark.member_ids)}"
        yield from _advice(result.to, remark.code, explain)
    if result.moves is not None:
        yield from _move_lines(result, result.moves)


def _members_of(result: DryRun, member_ids: Sequence[str]) -> str:
    if not member_ids:
        return ""
    by_id = {each.member_id: each for each in result.members}
    names = [_name(by_id[each]) for each in member_ids[:MAX_NAMED_MEMBERS] if each in by_id]
    more = f" and {len(member_ids) - MAX_NAMED_MEMBERS} more" if len(member_ids) > MAX_NAMED_MEMBERS else ""
    return f" [{', '.join(names)}{more}]"


def _name(member: MemberPlan) -> str:
    name = member.instance_id or member.member_id
    return f"{name} at {member.client_host}" if member.client_host else name


def _advice(to: str, code: str, explain: bool) -> Iterator[str]:
    row = advice_for(to, code) if explain else None
    if row is not None:
        yield f"  -> {row.do}"


def _move_lines(result: DryRun, moves: AssignmentChanges) -> Iterator[str]:
    unit = "active task" if result.to == "streams" else "partition"
    line = (
        f"dry run: {counted(moves.stay, unit)} {'stays' if moves.stay == 1 else 'stay'}, "
        f"{moves.move:,} {'moves' if moves.move == 1 else 'move'} to another member"
    )
    if result.to == "streams":
        line += (
            f"; standbys: {moves.copies_stay} kept, {moves.copies_removed} removed, {moves.copies_made} new"
        )
    yield (
        line
        if moves.settled
        else f"{line}; the group did not converge in {counted(moves.heartbeats, 'heartbeat')}"
    )


def members_table(result: DryRun) -> Table:
    """Return a table with a row for each member: its current and its target assignment."""
    streams = any(each.version is not None for each in result.members)
    columns = ["GROUP", "MEMBER", "CLIENT-ID", "HOST", "PROTOCOL"]
    columns += ["USER-DATA", "PROCESS", "ASSIGNED", "STANDBYS"] if streams else ["ASSIGNED"]
    columns += ["TARGET", "TARGET-STANDBYS"] if streams else ["TARGET"]
    rows = []
    for each in result.members:
        row: list[object] = [
            result.group_id, each.instance_id or each.member_id, each.client_id, each.client_host,
            each.speaks,
        ]  # fmt: skip
        row += (
            [each.version, each.process_id, len(each.has), len(each.standby)] if streams else [len(each.has)]
        )
        row.append(None if each.target is None else _change(each))
        if streams:
            copies = None if each.target is None else len(each.target_standby) + len(each.target_warmup)
            row.append(copies)
        rows.append(row)
    return Table(columns, rows)


def _change(member: MemberPlan) -> str:
    target = member.target or frozenset()
    changes = [f"+{len(target - member.has)}"] * bool(target - member.has)
    changes += [f"-{len(member.has - target)}"] * bool(member.has - target)
    return f"{len(target)} ({' '.join(changes)})" if changes else str(len(target))


# JSON -----------------------------------------------------------------------------------------


def document(result: DryRun, *, explain: bool) -> dict[str, object]:
    """Return the result for a group as a JSON document. `explain` adds what to do about each blocker and
    note."""
    return {
        "group": result.group_id,
        "type": result.type,
        "to": result.to,
        "epoch": result.epoch if result.epoch >= 0 else None,
        "protocol": result.protocol,
        "can_migrate": result.can,
        "blockers": [
            _remark(result.to, each.code, each.reason, each.member_ids, explain) for each in result.blockers
        ],
        "notes": [
            _remark(result.to, each.code, each.sentence, each.member_ids, explain) for each in result.notes
        ],
        "moves": None if result.moves is None else result.moves._asdict(),
        "members": [_member(each) for each in result.members],
    }


def _remark(to: str, code: str, text: str, member_ids: Sequence[str], explain: bool) -> dict[str, object]:
    out: dict[str, object] = {"code": code, "reason": text, "member_ids": list(member_ids)}
    if explain:
        row = advice_for(to, code)
        out["advice"] = None if row is None else row.do
    return out


def _member(each: MemberPlan) -> dict[str, object]:
    out: dict[str, Any] = each._asdict()
    for name in ("has", "standby", "target", "target_standby", "target_warmup"):
        out[name] = None if out[name] is None else sorted(out[name], key=_sort_key)
    return out


def _sort_key(unit: str) -> tuple[str, int]:
    """Return a sort key of partitions and tasks that puts `orders-10` after `orders-9`."""
    at = max(unit.rfind("-"), unit.rfind("_"))
    return unit[:at], int(unit[at + 1 :])


# catalogue ------------------------------------------------------------------------------------


def catalogue_tables() -> list[Table]:
    """Return three tables: all blockers, all notes, and the Kafka Streams releases (see `releases`)."""
    found = []
    for blocks, head in ((True, "BLOCKER"), (False, "NOTE")):
        rows = [row for row in ADVICE if row.blocks is blocks]
        details = [[f"-> {row.do}"] for row in rows]
        found.append(Table([head, "TO", "DESCRIPTION"], [_row(row) for row in rows], (), details))
    return [*found, releases()]


def _row(row: Advice) -> list[str]:
    return [row.code, ",".join(row.to), row.what]


def releases() -> Table:
    """Return a table of Kafka Streams releases, one row for each version of the user data that they send with
    the classic protocol; CAN-MIGRATE is when members of these releases can migrate online."""
    from konvene.groups.streams.classic.client_versions import RELEASES

    columns = ["KAFKA-STREAMS", "USER-DATA", "REBALANCES", "NEW-FIELDS", "CAN-MIGRATE"]
    last = RELEASES[-1]
    rows = [
        [r.releases, r.version, r.rebalances, r.features, "from 4.0 on" if r is last else "after 4.x"]
        for r in RELEASES
    ]
    return Table(columns, rows)


def has_findings(results: Sequence[DryRun]) -> bool:
    """Return True if any group has a blocker or a note."""
    return any(each.blockers or each.notes for each in results)


def catalogue_document() -> dict[str, object]:
    """Return a JSON document with all blockers and notes, all Kafka Streams releases, and the first of these
    that can migrate."""
    from konvene.groups.streams.classic.client_versions import FIRST_MIGRATING_RELEASE, RELEASES

    return {
        "obstacles": [row._asdict() | {"to": list(row.to)} for row in ADVICE],
        "kafka_streams": {
            "first_that_migrates": FIRST_MIGRATING_RELEASE,
            "releases": [row._asdict() for row in RELEASES],
        },
    }
