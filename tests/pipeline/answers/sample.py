"""Gold tables of hypothetical groups from a small model, for answers that need no log.

`Model` is one group with members that join and leave; each step adds the rows that its log would give.
`table` builds a table from rows that name only the relevant columns."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from typing import Any

import pyarrow as pa

from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.tables import TABLES

START_MS = 1_795_226_400_000
NAMES = (
    "rebalance", "rebalance_member", "ownership", "unavailability", "lag", "group_health", "share_delivery",
    "share_progress",
)  # fmt: skip


@cache
def blank(name: str) -> dict[str, Any]:
    """Return a row in which all columns are null, or empty where null is not allowed."""
    row: dict[str, Any] = {}
    for column in TABLES[name].columns:
        empty: Any = 0
        if pa.types.is_string(column.type):
            empty = ""
        elif pa.types.is_boolean(column.type):
            empty = False
        elif pa.types.is_list(column.type):
            empty = []
        row[column.name] = None if column.nullable else empty
    return row


def filled(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with all columns."""
    assert row.keys() <= blank(name).keys(), row.keys() - blank(name).keys()
    return blank(name) | row


def table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([filled(name, row) for row in rows], TABLES[name].schema)


def gold(**tables: list[dict[str, Any]]) -> Gold:
    """Return gold tables with the given rows, and all others empty."""
    return Gold({name: table(name, tables.get(name, [])) for name in NAMES})


class Client:
    """A client that joins and leaves the group; each time it is a new member."""

    def __init__(self, client_id: str, host: str, instance_id: str | None = None) -> None:
        self.client_id, self.host, self.instance_id = client_id, host, instance_id


class Model:
    """One group, and in `rows` its tables."""

    def __init__(
        self, group: str, group_type: str, topics: dict[str, int], *, seed: int = 1, at_ms: int = START_MS,
        eager: bool | None = None, evidence: str = "observed",
    ) -> None:  # fmt: skip
        self.group, self.group_type, self.at_ms = group, group_type, at_ms
        self.units = [(topic, n) for topic, count in sorted(topics.items()) for n in range(count)]
        self.rng = random.Random(seed)
        self.eager = group_type == "classic" if eager is None else eager
        self.evidence = evidence
        self.epoch = 0
        self.offset = 0
        self.members: dict[str, Client] = {}
        self.owner: dict[tuple[str, int], str] = {}
        self.since: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
        self.backlog = dict.fromkeys(self.units, 0.0)
        self.ends = {unit: 10_000 * (i + 1) for i, unit in enumerate(self.units)}

    def __repr__(self) -> str:
        return f"<{self.group_type} group {self.group} at {self.epoch}>"

    # --- events of the group ---

    def wait(self, ms: int) -> None:
        """Advance the clock; records are produced and committed every minute."""
        end = self.at_ms + ms
        while self.at_ms // 60_000 < end // 60_000:
            self.at_ms = (self.at_ms // 60_000 + 1) * 60_000
            for unit in self.units:
                self.commit(unit, self.at_ms - 1_000)
        self.at_ms = end

    def join(self, *clients: Client, took_ms: int = 2_000, slow: str = "") -> None:
        new = {self.new_id(client): client for client in clients}
        self.rebalance("member-joined", new, {}, took_ms, slow)

    def leave(
        self, *client_ids: str, kind: str = "member-left", took_ms: int = 2_000, slow: str = ""
    ) -> None:
        departed = {m: c for m, c in self.members.items() if c.client_id in client_ids}
        assert departed, client_ids
        self.rebalance(kind, {}, departed, took_ms, slow)

    def change(self, client_id: str, kind: str = "subscription-changed", took_ms: int = 1_000) -> None:
        member_id = next(m for m, c in self.members.items() if c.client_id == client_id)
        self.rebalance(kind, {}, {}, took_ms, "", member_id)

    def add_warm_up(self, client_id: str, ms: int) -> None:
        """Add warm-up intervals for the tasks that a client was assigned in the last rebalance."""
        for unit, member_id in sorted(self.owner.items()):
            if self.members[member_id].client_id == client_id and self.since[unit][1] == self.epoch:
                self.close(unit, member_id, self.since[unit][0])
                row = self.rows["ownership"][-1]
                row |= {"role": "warmup", "from_ms": row["to_ms"] - ms}

    # --- resulting rows ---

    def new_id(self, client: Client) -> str:
        name = client.instance_id or client.client_id
        digits = f"{self.rng.getrandbits(128):032x}"
        return f"{name}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def commit(self, unit: tuple[str, int], ms: int) -> None:
        grown = self.rng.randrange(400, 800)
        self.ends[unit] += grown
        behind = self.rng.randrange(0, 60) + round(self.backlog[unit])
        self.backlog[unit] *= 0.7
        self.rows["lag"].append({
            "group_id": self.group, "topic": unit[0], "partition": unit[1],
            "minute_ms": ms // 60_000 * 60_000, "committed_offset": self.ends[unit] - behind,
            "commit_ms": ms, "commits": 12, "advanced": grown,
            "log_end_offset": self.ends[unit], "lag": behind, "time_lag_ms": behind * 90,
            "evidence": "observed",
        })  # fmt: skip

    def rebalance(
        self,
        kind: str,
        new: dict[str, Client],
        departed: dict[str, Client],
        took_ms: int,
        slow: str,
        member_id: str = "",
    ) -> None:
        start, end, before = self.at_ms, self.at_ms + took_ms, dict(self.owner)
        members_before = dict(self.members)
        self.members = {m: c for m, c in self.members.items() if m not in departed} | new
        self.epoch += 1
        self.offset += 10
        self.owner = self.assign(before)
        causes = [self.cause(kind, m, c, start) for m, c in (departed or new).items()]
        causes = causes or [self.cause(kind, member_id, members_before[member_id], start)]
        kept = sum(1 for u, m in self.owner.items() if before.get(u) == m)
        moved = sum(1 for u, m in self.owner.items() if u in before and before[u] != m)
        revoked = sum(1 for u, m in before.items() if self.owner.get(u) != m)
        unavailable = self.gaps(before, start, end, causes[0]["kind"])
        last = next((m for m, c in self.members.items() if c.client_id == slow), None)
        self.rows["rebalance"].append({
            "group_id": self.group, "group_type": self.group_type, "from_epoch": self.epoch - 1,
            "to_epoch": self.epoch, "state": "Stable" if self.members else "Empty",
            "cause": causes[0]["kind"],
            **{k: causes[0][k] for k in ("member_id", "instance_id", "client_id", "client_host")},
            "causes": causes, "evidence": self.evidence, "start_ms": start,
            "target_ms": start + took_ms // 2, "end_ms": end, "duration_ms": took_ms, "converged": True,
            "members": len(self.members), "joined": len(new), "gone": len(departed), "units": len(self.owner),
            "kept": kept, "moved": moved, "revoked": revoked, "added": len(self.owner) - kept - moved,
            "least_moves": min(moved, len(self.units) // max(len(self.members), 1)),
            "churn_ratio": moved / len(before) if before else None, "unavailable_ms": unavailable,
            "last_member_id": last or next(iter(self.members), None), "log_partition": 3,
            "base_offset": self.offset, "last_offset": self.offset + 5,
        })  # fmt: skip
        for member_id, client in {**members_before, **new}.items():
            self.add_member_row(member_id, client, before, departed, new, took_ms, slow)
        self.add_ownership(before, start, end)
        self.health(start, took_ms, unavailable, last)
        self.at_ms = end

    def assign(self, before: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
        """Assign by range in eager groups, otherwise with as few moves as possible."""
        names = sorted(self.members, key=lambda m: (self.members[m].client_id, m))
        if not names:
            return {}
        if self.eager:
            return {unit: names[i * len(names) // len(self.units)] for i, unit in enumerate(self.units)}
        low, extra = divmod(len(self.units), len(names))
        capacity = {name: low + (i < extra) for i, name in enumerate(names)}
        after = {}
        for unit in self.units:
            if before.get(unit) in capacity and capacity[before[unit]] > 0:
                after[unit] = before[unit]
                capacity[before[unit]] -= 1
        for unit in self.units:
            if unit not in after:
                after[unit] = max(names, key=lambda name: capacity[name])
                capacity[after[unit]] -= 1
        return after

    def cause(self, kind: str, member_id: str, client: Client, at_ms: int) -> dict[str, Any]:
        return {
            "kind": kind, "at_ms": at_ms, "member_id": member_id, "instance_id": client.instance_id,
            "client_id": client.client_id, "client_host": client.host, "reason": None, "topic": None,
        }  # fmt: skip

    def gaps(self, before: dict[tuple[str, int], str], start: int, end: int, cause: str) -> int:
        total = 0
        for unit, member_id in before.items():
            after = self.owner.get(unit)
            if after == member_id and not self.eager:
                continue
            to_ms = end if after is not None else None
            self.backlog[unit] += (end - start) / 20
            total += end - start if to_ms is not None else 0
            self.rows["unavailability"].append({
                "group_id": self.group, "group_type": self.group_type, "topic": unit[0], "partition": unit[1],
                "role": "active", "from_ms": start, "to_ms": to_ms,
                "gap_ms": None if to_ms is None else to_ms - start, "from_member_id": member_id,
                "to_member_id": after, "epoch": self.epoch, "log_partition": 3, "base_offset": self.offset,
                "cause": cause, "evidence": self.evidence,
            })  # fmt: skip
        return total

    def add_member_row(
        self, member_id: str, client: Client, before: dict[tuple[str, int], str], departed: dict[str, Client],
        new: dict[str, Client], took_ms: int, slow: str,
    ) -> None:  # fmt: skip
        had = {u for u, m in before.items() if m == member_id}
        has = {u for u, m in self.owner.items() if m == member_id}
        part = "gone" if member_id in departed else "joined" if member_id in new else "stayed"
        has_new_units = bool(has - had)
        after = took_ms if client.client_id == slow or not slow or has_new_units else took_ms // 4
        awaited = next((m for m, c in self.members.items() if c.client_id == slow), None)
        self.rows["rebalance_member"].append({
            "group_id": self.group, "group_type": self.group_type, "to_epoch": self.epoch,
            "log_partition": 3, "base_offset": self.offset, "member_id": member_id,
            "instance_id": client.instance_id, "client_id": client.client_id, "client_host": client.host,
            "part": part, "acknowledged_ms": None if part == "gone" else after, "states": ["STABLE"],
            "waited_for": [awaited] if awaited and has - had and awaited != member_id else [],
            "units_before": len(had), "units_after": len(has), "revoked": len(had - has),
            "added": len(has - had), "evidence": self.evidence,
        })  # fmt: skip

    def add_ownership(self, before: dict[tuple[str, int], str], start: int, end: int) -> None:
        for unit in self.units:
            old, now = before.get(unit), self.owner.get(unit)
            if old == now:
                continue
            if old is not None:
                self.close(unit, old, start)
            if now is not None:
                self.since[unit] = (end, self.epoch, self.offset)

    def close(self, unit: tuple[str, int], member_id: str, to_ms: int | None) -> None:
        from_ms, epoch, offset = self.since[unit]
        self.rows["ownership"].append({
            "group_id": self.group, "group_type": self.group_type, "topic": unit[0], "partition": unit[1],
            "role": "active", "member_id": member_id, "client_id": member_id.rsplit("-", 5)[0],
            "from_ms": from_ms, "to_ms": to_ms, "from_epoch": epoch,
            "to_epoch": None if to_ms is None else self.epoch, "log_partition": 3, "from_offset": offset,
            "to_offset": None if to_ms is None else self.offset, "evidence": self.evidence,
        })  # fmt: skip

    def health(self, start: int, took_ms: int, unavailable: int, stuck: str | None) -> None:
        recent = [r for r in self.rows["rebalance"] if r["start_ms"] > start - 600_000]
        pct = 100 * unavailable / (60_000 * len(self.units))
        score = 100 - min(40, round(pct)) - 30 * (len(recent) >= 5) - 20 * (took_ms > 20_000)
        self.rows["group_health"].append({
            "group_id": self.group, "group_type": self.group_type, "minute_ms": start // 60_000 * 60_000,
            "state": "Stable", "members": len(self.members), "rebalances": 1,
            "rebalances_last_hour": len(recent), "p99_rebalance_ms": took_ms, "unavailable_pct": pct,
            "stuck_member_id": stuck if took_ms > 20_000 else None, "storm": len(recent) >= 5,
            "score": max(score, 0),
        })  # fmt: skip

    def finished_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tables; intervals of current owners stay open."""
        for unit, member_id in sorted(self.owner.items()):
            self.close(unit, member_id, None)
        self.owner = {}
        return self.rows


def together(*models: Model) -> Gold:
    """Return gold with the tables of all given groups."""
    finished_rows = [model.finished_rows() for model in models]
    return gold(**{name: [row for rows in finished_rows for row in rows[name]] for name in NAMES})


def day() -> Gold:
    """Return gold of a day with four groups: restarted often, stable, stuck, and Kafka Streams."""
    pods = [Client(f"orders-{i}", f"/10.0.0.{i + 10}") for i in range(6)]
    orders = Model("orders-app", "classic", {"orders": 12, "returns": 6}, seed=1)
    for pod in pods:
        orders.join(pod, took_ms=3_200)
        orders.wait(2_000)
    for hour in range(8):
        orders.wait(2_400_000 + 60_000 * hour)
        for pod in pods[: 6 if hour in (2, 5) else 2]:
            orders.leave(pod.client_id, took_ms=2_600 + 100 * hour)
            orders.wait(9_000)
            orders.join(pod, took_ms=3_100)
            orders.wait(14_000)
        if hour in (1, 4):
            orders.wait(600_000)
            orders.join(Client("orders-6", "/10.0.0.16"), Client("orders-7", "/10.0.0.17"), took_ms=3_400)
            orders.wait(2_700_000)
            orders.leave("orders-6", "orders-7", took_ms=2_900)
        if hour == 6:
            for _ in range(4):
                orders.leave("orders-3", kind="session-expired", took_ms=9_000)
                orders.wait(41_000)
                orders.join(pods[3], took_ms=3_300)
                orders.wait(55_000)
    orders.wait(3_600_000)

    payments = Model("payments", "consumer", {"payments": 16}, seed=2)
    payments.join(*[Client(f"pay-{i}", f"/10.0.1.{i}") for i in range(4)], took_ms=900)
    payments.wait(9_000_000)
    payments.join(Client("pay-4", "/10.0.1.4"), took_ms=700)
    payments.wait(7_200_000)
    payments.leave("pay-1", kind="session-expired", took_ms=1_400)
    payments.wait(12_000_000)

    stuck = Model("invoices", "consumer", {"invoices": 10}, seed=3, evidence="inferred")
    stuck.join(*[Client(f"inv-{name}", f"/10.0.2.{i}") for i, name in enumerate("abc")], took_ms=1_000)
    for i in range(9):
        stuck.wait(1_500_000 + 120_000 * i)
        if i % 2:
            stuck.leave(f"inv-x{i - 1}", kind="member-left|session-expired", took_ms=33_000, slow="inv-b")
        else:
            stuck.join(Client(f"inv-x{i}", "/10.0.2.9"), took_ms=31_000 + 2_000 * i, slow="inv-b")
    stuck.wait(3_000_000)

    words = Model("wordcount", "streams", {"0": 4, "1": 4}, seed=4)
    words.join(Client("words-1", "/10.0.3.1"), took_ms=1_200)
    words.wait(4_000_000)
    words.join(Client("words-2", "/10.0.3.2"), took_ms=5_200)
    words.add_warm_up("words-2", 5_000)
    words.wait(16_000_000)
    words.change("words-2", "topology-initialized", took_ms=2_500)
    words.wait(7_000_000)
    return together(orders, payments, stuck, words)


def queue() -> Gold:
    """Return gold of a share group with a stuck partition, one with rejected records, and one with a
    truncated log."""
    model = Model("jobs-app", "share", {"jobs": 3}, seed=5)
    model.join(Client("work-1", "/10.0.4.1"), Client("work-2", "/10.0.4.2"), took_ms=1_000)
    model.wait(600_000)
    model.leave("work-2", kind="session-expired", took_ms=1_000)
    last, rows = model.at_ms, model.finished_rows()
    common = {
        "group_id": "jobs-app",
        "topic": "jobs",
        "last_ms": last,
        "moved_ms": last,
        "evidence": "observed",
    }
    rows["share_delivery"] = [
        common | {"partition": 0, "start_offset": 90, "delivered": 100, "redelivered": 4, "acknowledged": 80,
                  "released": 4, "archived": 10, "max_delivery_count": 5},
        common | {"partition": 1, "start_offset": 7, "delivered": 60, "redelivered": 9, "acknowledged": 40,
                  "released": 12, "in_flight": 3, "in_flight_deliveries": 4, "max_delivery_count": 4,
                  "moved_ms": last - 90_000},
        common | {"partition": 2, "start_offset": -1, "evidence": "missing"},
    ]  # fmt: skip
    first = START_MS // 60_000 * 60_000
    rows["share_progress"] = [
        common | {"partition": partition, "minute_ms": first + 60_000 * minute, "delivered": 20,
                  "redelivered": again, "archived": archived, "start_offset": 7}
        for minute, partition, again, archived in ((1, 0, 4, 2), (2, 0, 0, 8), (2, 1, 5, 0), (5, 1, 4, 0),
                                                   (6, 1, 0, 0))
    ]  # fmt: skip
    for row in rows["share_progress"]:
        del row["moved_ms"]
    return gold(**rows)
