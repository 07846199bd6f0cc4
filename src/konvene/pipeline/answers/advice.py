"""Advice on how to avoid rebalances or make them cheaper, with the numbers that it rests on.

A rule is a row of `RULES`: a function that examines one group and returns a piece of advice or None. A rule
applies only if it counts at least `AT_LEAST` rebalances; it reports their number and share, the clients that
caused them, and what they cost. Its text has "would have" for consequences of the protocol, and "may"
for facts that the log does not record, such as the time that a client needs between two polls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.groups.history import duration
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.restarts import BACK_WITHIN_MS, find_restarts, rebalances_of_restarts
from konvene.pipeline.answers.sentences import seconds
from konvene.pipeline.row import Row
from konvene.plurals import counted
from konvene.shard import causes

__all__ = ["RULES", "Advice", "Facts", "advise"]

AT_LEAST = 3
"""Minimum number of rebalances that a rule needs to apply."""
MAX_NAMES = 5
SLOW_MS = 1_000


class Facts(NamedTuple):
    """Input of the rules: the rebalances of one group, and the rows of other tables that belong to them."""

    rebalances: Sequence[Rebalance]
    """Oldest first; not empty."""
    members: Sequence[Row]
    """Rows of `rebalance_member`."""
    gaps: Sequence[Row]
    """Rows of `unavailability`."""

    @property
    def total(self) -> int:
        return len(self.rebalances)

    @property
    def classic(self) -> bool:
        return self.rebalances[-1].group_type == "classic"


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation for one group, with the numbers that it rests on."""

    group: str
    rule: str
    text: str
    weight_ms: int
    """Partition-milliseconds that it would have spared; used for ranking only."""
    epochs: tuple[int, ...] = ()
    """Epochs of the rebalances that it counts."""
    clients: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    cluster: str = ""
    """Cluster of the group, which `summarise` adds."""

    def document(self) -> dict[str, object]:
        return {
            "cluster": self.cluster, "group": self.group, "rule": self.rule, "text": self.text,
            "epochs": list(self.epochs),
            "clients": list(self.clients), "numbers": dict(self.numbers),
        }  # fmt: skip


def advise(group: str, facts: Facts) -> list[Advice]:
    """Return the advice for this group; the one that would have spared the most comes first."""
    if not facts.rebalances:
        return []
    found = [each for rule in RULES.values() if (each := rule(group, facts)) is not None]
    return sorted(found, key=lambda each: (-each.weight_ms, each.rule))


def _cost_ms(rebalances: Iterable[Rebalance]) -> int:
    return sum(r.unavailable_ms or 0 for r in rebalances)


def _cost_clause(rebalances: Iterable[Rebalance]) -> str:
    """Return a clause with the partition-seconds (task-seconds) that the rebalances cost; empty if none are
    known."""
    chosen = list(rebalances)
    ms = _cost_ms(chosen)
    return f"; they cost {seconds(ms)} {chosen[0].unit}-seconds" if ms else ""


def _names(found: Iterable[str | None]) -> str:
    """Format at most `MAX_NAMES` names with their counts, most frequent first; None and empty names do not
    count."""
    ranked = Counter(name for name in found if name).most_common()
    listed = [f"{name} ({count}×)" if count > 1 else name for name, count in ranked[:MAX_NAMES]]
    more = len(ranked) - len(listed)
    return ", ".join([*listed, *([f"{more:,} more"] if more else [])])


def _epochs(rebalances: Iterable[Rebalance]) -> tuple[int, ...]:
    return tuple(r.to_epoch for r in rebalances)


def _share(count: int, total: int) -> str:
    """Return a phrase such as `14 of 20 rebalances`."""
    return f"{count:,} of {counted(total, 'rebalance')}"


# the rules ------------------------------------------------------------------------------------


def static_membership(group: str, facts: Facts) -> Advice | None:
    """Advise static membership if clients that restart within `BACK_WITHIN_MS` trigger rebalances."""
    found = find_restarts(facts.rebalances)
    spared = rebalances_of_restarts(facts.rebalances, found)
    last = facts.rebalances[-1]
    if len(spared) < AT_LEAST or last.group_type in ("share", "streams") or last.is_connect:
        return None
    clients = tuple(sorted({r.client_id for r in found}))
    longest = max(r.away_ms for r in found)
    above = f", and a session timeout above {duration(longest)}" if longest >= 1_000 else ""
    text = (
        f"{_share(len(spared), facts.total)} were restarts under {BACK_WITHIN_MS // 1000} s: static "
        f"membership (a group.instance.id of its own for each member{above}) would have avoided them"
        f"{_cost_clause(spared)}. Clients: {_names(r.client_id for r in found)}."
    )
    numbers = {"restarts": len(found), "rebalances": len(spared), "of": facts.total,
               "unavailable_ms": _cost_ms(spared)}  # fmt: skip
    return Advice(group, "static-membership", text, _cost_ms(spared), _epochs(spared), clients, numbers)


def protocol(group: str, facts: Facts) -> Advice | None:
    """Advise a cooperative assignor if an eager group revokes partitions and assigns them to the same members
    again."""
    if not facts.classic:
        return None
    idle = [
        gap
        for gap in facts.gaps
        if gap["from_member_id"] is not None
        and gap["from_member_id"] == gap["to_member_id"]
        and gap["group_type"] == "classic"
        and gap["role"] == "active"
    ]
    stopped = {(gap["log_partition"], gap["base_offset"], gap["epoch"]) for gap in idle}
    chosen = [r for r in facts.rebalances if (r.log_partition, r.base_offset, r.to_epoch) in stopped]
    ms = sum(gap["gap_ms"] or 0 for gap in idle)
    if len(chosen) < AT_LEAST or not ms:
        return None
    text = (
        f"In {_share(len(chosen), facts.total)} members revoked partitions and were assigned the same ones "
        "again: "
        f"{counted(len(idle), 'partition')} needlessly had no owner, {seconds(ms)} partition-seconds in "
        "total. "
        "The cooperative-sticky assignor keeps such partitions assigned; so does the consumer protocol "
        "(group.protocol=consumer)."
    )
    numbers = {"rebalances": len(chosen), "of": facts.total, "partitions": len(idle), "unavailable_ms": ms}
    return Advice(group, "protocol", text, ms, _epochs(chosen), (), numbers)


def session_timeout(group: str, facts: Facts) -> Advice | None:
    """Advise a longer session timeout if members that a timeout removed join again within two minutes."""
    lost = [
        r for r in find_restarts(facts.rebalances, 120_000)
        if causes.SESSION_EXPIRED in r.kind.split("|") or causes.REBALANCE_TIMEOUT in r.kind.split("|")
    ]  # fmt: skip
    sure = [r for r in lost if "|" not in r.kind]
    if len(sure) < AT_LEAST:
        return None
    chosen = list({r.left_in.key: r.left_in for r in sure}.values())
    back = sorted(r.away_ms for r in sure)
    text = (
        f"{counted(len(sure), 'time')} a member was removed for missing heartbeats and rejoined after "
        f"{duration(back[len(back) // 2])} (median), in {_share(len(chosen), facts.total)}: it was slow, "
        "not dead. A longer session.timeout.ms, or shorter pauses of the client (garbage collection, a busy "
        f"host), may avoid them{_cost_clause(chosen)}. Clients: {_names(r.client_id for r in sure)}."
    )
    numbers = {"expired": len(sure), "rebalances": len(chosen), "of": facts.total}
    clients = tuple(sorted({r.client_id for r in sure}))
    return Advice(group, "session-timeout", text, _cost_ms(chosen), _epochs(chosen), clients, numbers)


FLAPPING = {causes.SUBSCRIPTION_CHANGED, causes.MEMBER_METADATA_CHANGED, causes.ASSIGNOR_CHANGED}


def subscriptions(group: str, facts: Facts) -> Advice | None:
    """Advise constant subscriptions if a client changes its subscription or assignor repeatedly."""
    chosen = [r for r in facts.rebalances if any(c.kind in FLAPPING for c in r.all_causes)]
    named = [c.client_id for r in chosen for c in r.all_causes if c.kind in FLAPPING and c.client_id]
    if len(chosen) < AT_LEAST or not named or Counter(named).most_common(1)[0][1] < AT_LEAST:
        return None
    text = (
        f"{_share(len(chosen), facts.total)} were triggered by members that changed their subscription or "
        "assignor"
        f"{_cost_clause(chosen)}. Each change rebalances the whole group: subscribe once, to all topics "
        "that are "
        f"needed. Clients: {_names(named)}."
    )
    numbers = {"rebalances": len(chosen), "of": facts.total}
    return Advice(group, "flapping-subscriptions", text, _cost_ms(chosen), _epochs(chosen),
                  tuple(sorted(set(named))), numbers)  # fmt: skip


def stuck_client(group: str, facts: Facts) -> Advice | None:
    """Advise more frequent polls if other members repeatedly wait for the same client.

    Of several members with one client id, the one that a rebalance waited for longest counts."""
    longest: dict[str, dict[object, tuple[Rebalance, int]]] = defaultdict(dict)
    for r, rows in _converged_members(facts):
        for row, ms in _waited_for(r, rows):
            if ms >= SLOW_MS:
                of_client = longest[row["client_id"] or row["member_id"]]
                of_client[r.key] = max(of_client.get(r.key, (r, 0)), (r, ms), key=lambda each: each[1])
    if not longest:
        return None
    waited = {client: list(found.values()) for client, found in longest.items()}
    client, found = max(sorted(waited.items()), key=lambda item: sum(ms for _, ms in item[1]))
    others = sum(len(each) for each in waited.values()) - len(found)
    if len(found) < AT_LEAST or others > len(found):
        return None
    ms = sum(each for _, each in found)
    chosen = [r for r, _ in found]
    text = (
        f"Others waited for {client} in {_share(len(chosen), facts.total)}, {duration(ms)} in total, "
        f"{duration(ms // len(found))} each time. Check how long it works between two polls: smaller "
        "batches (max.poll.records), or processing on another thread, let it revoke sooner."
    )
    numbers = {"rebalances": len(chosen), "of": facts.total, "waited_ms": ms}
    return Advice(group, "stuck-client", text, ms, _epochs(chosen), (client,), numbers)


def _waited_for(r: Rebalance, rows: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Yield the row of each member that others waited for, with the milliseconds.

    In a classic group that is the member that rejoined last, with its delay after the second to last; in
    other groups each member that had to revoke units first, with the time until it reached its target."""
    if r.group_type == "classic":
        ranked = sorted(rows, key=lambda row: (-row["acknowledged_ms"], row["member_id"]))
        if len(ranked) > 1 and ranked[0]["part"] == "stayed":
            yield ranked[0], ranked[0]["acknowledged_ms"] - ranked[1]["acknowledged_ms"]
        return
    awaited = {member_id for row in rows for member_id in row["waited_for"]}
    for row in rows:
        if row["member_id"] in awaited:
            yield row, row["acknowledged_ms"]


def _converged_members(facts: Facts) -> Iterator[tuple[Rebalance, list[Row]]]:
    """Yield each rebalance with the rows of its members that reached their target assignments at a known
    time; rebalances without such members are skipped."""
    by_key: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for row in facts.members:
        if row["acknowledged_ms"] is not None and row["part"] != "gone":
            by_key[row["log_partition"], row["base_offset"], row["to_epoch"]].append(row)
    for r in facts.rebalances:
        rows = by_key.get((r.log_partition, r.base_offset, r.to_epoch))
        if rows:
            yield r, rows


def churn(group: str, facts: Facts) -> Advice | None:
    """Advise a sticky assignor if rebalances move at least twice as many units as the new balance
    requires."""
    chosen = [r for r in facts.rebalances if r.moved > r.least_moves and r.converged]
    moved, least = sum(r.moved for r in chosen), sum(r.least_moves for r in chosen)
    if len(chosen) < AT_LEAST or moved < 2 * max(least, 1) or facts.rebalances[-1].group_type == "share":
        return None
    unit = chosen[0].unit
    sticky = "The cooperative-sticky assignor moves" if facts.classic else "A sticky assignor (uniform) moves"
    text = (
        f"In {_share(len(chosen), facts.total)}, {counted(moved, unit)} moved where {least:,} would have "
        "been "
        f"enough for the same balance. {sticky} no more than necessary."
    )
    numbers = {"rebalances": len(chosen), "of": facts.total, "moved": moved, "least_moves": least}
    return Advice(group, "churn", text, _cost_ms(chosen) // 2, _epochs(chosen), (), numbers)


def slow_start(group: str, facts: Facts) -> Advice | None:
    """Advise `group.initial.rebalance.delay.ms` if a starting classic group rebalances for each joining
    member."""
    if not facts.classic:
        return None
    best: list[Rebalance] = []
    run: list[Rebalance] = []
    for r in facts.rebalances:
        joins = all(c.kind in (causes.MEMBER_JOINED, causes.COOPERATIVE_FOLLOW_UP) for c in r.all_causes)
        if run and (not joins or r.at_ms - run[-1].at_ms > BACK_WITHIN_MS):
            run = []
        if joins and (run or r.members == r.joined):
            run.append(r)
        if len(run) > len(best):
            best = list(run)
    if len(best) < AT_LEAST:
        return None
    took_ms = best[-1].at_ms - best[0].at_ms
    text = (
        f"{_share(len(best), facts.total)} followed one another within {duration(took_ms)} while the group "
        f"started with {counted(best[-1].members, 'member')}{_cost_clause(best)}. "
        f"group.initial.rebalance.delay.ms of {-(-took_ms // 1000) * 1000} on the broker would have merged "
        "them into one."
    )
    numbers = {"rebalances": len(best), "of": facts.total, "took_ms": took_ms}
    return Advice(group, "slow-start", text, _cost_ms(best), _epochs(best), (), numbers)


RULES: dict[str, Callable[[str, Facts], Advice | None]] = {
    "static-membership": static_membership,
    "protocol": protocol,
    "session-timeout": session_timeout,
    "flapping-subscriptions": subscriptions,
    "stuck-client": stuck_client,
    "churn": churn,
    "slow-start": slow_start,
}
