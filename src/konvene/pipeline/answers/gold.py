"""The gold tables, read as far as an explanation needs them.

`Gold` takes tables by name, or a warehouse whose tables it reads on demand. Rebalances are read once; rows of
one group (`rows`) are read for that group alone, so explaining one group of a warehouse with ten thousand
does not load them all.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.answers.evidence import Generation, GenerationMember
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.row import Row
from konvene.pipeline.tables import TABLES

if TYPE_CHECKING:
    from konvene.pipeline.answers.cost import Key
    from konvene.pipeline.answers.damage import Damage
    from konvene.pipeline.answers.evidence import Evidence
    from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = ["Gold"]


class Gold:
    """Read access to the gold tables, in memory or in a warehouse.

    With `cluster` only rows of that cluster are read. `evidence` settles causes of rebalances that the
    records leave open; what comes first prevails."""

    def __init__(
        self,
        tables: Mapping[str, pa.Table] | None = None,
        *,
        warehouse: Warehouse | None = None,
        cluster: str | None = None,
        evidence: Sequence[Evidence] = (),
    ):
        self._tables = dict(tables or {})
        self._warehouse = warehouse
        self._cluster = cluster
        self._evidence = tuple(evidence)
        self._generations: dict[tuple[str, str], list[Generation]] = {}

    def __repr__(self) -> str:
        return f"Gold({self._warehouse if self._warehouse is not None else sorted(self._tables)})"

    # --- rebalances ---

    @cached_property
    def rebalances(self) -> list[Rebalance]:
        """Return all rebalances, newest first."""
        return self.select(Selection())

    def select(self, wanted: Selection) -> list[Rebalance]:
        """Return the selected rebalances, newest first."""
        return self._selected(self.rows("rebalance", wanted.groups), wanted)

    def select_changed(self, wanted: Selection, read: set[str]) -> list[Rebalance]:
        """Return the selected rebalances of the files of a warehouse that are not in `read`, newest first.

        The files are added to `read`, those that the warehouse has replaced are removed. A file has all
        rebalances of some groups, so that unchanged ones are returned again with changed ones."""
        if self._warehouse is None:
            return self.select(wanted)
        from konvene.pipeline.warehouse import read as reading

        files = {each.path: each for each in self._warehouse.files("rebalance", cluster=self._cluster)}
        new = [each for path, each in files.items() if path not in read]
        read.intersection_update(files)
        read.update(files)
        in_groups = pc.field("group_id").isin(list(wanted.groups)) if wanted.groups else None
        rows = [
            row for b in reading.of_files(self._warehouse.path, new, None, in_groups) for row in b.to_pylist()
        ]
        return self._selected(rows, wanted)

    def settled(self, rebalance: Rebalance) -> Rebalance:
        """Return a rebalance with the causes that the evidence settles."""
        for evidence in self._evidence:
            rebalance = evidence.settled(rebalance, self)
        return rebalance

    def _selected(self, rows: Iterable[Row], wanted: Selection) -> list[Rebalance]:
        settled = (self.settled(Rebalance.from_row(row)) for row in rows)
        found = [each for each in settled if wanted.includes(each)]
        found.sort(key=lambda r: (r.at_ms, r.to_epoch, r.base_offset, r.cluster, r.group_id), reverse=True)
        return found

    def previous_generation(self, rebalance: Rebalance) -> Generation | None:
        """Return the generation of a classic group that a rebalance replaced, from silver; None if its record
        is not there."""
        group = (rebalance.cluster, rebalance.group_id)
        if rebalance.group_type != "classic":
            return None
        if group not in self._generations:
            wanted = (pc.field("cluster") == group[0]) & (pc.field("group") == group[1])
            rows = self.matching("group_metadata", wanted, ["offset", "generation", "members"])
            self._generations[group] = [_generation(row) for row in rows if row["generation"] is not None]
        known = (g for g in self._generations[group] if g.offset < rebalance.base_offset)
        last = max(known, key=lambda g: g.offset, default=None)
        return last if last is not None and last.number == rebalance.from_epoch else None

    # --- groups ---

    @cached_property
    def groups(self) -> list[str]:
        """Sorted ids of all groups that have rebalances, lag, transactional commits or share deliveries."""
        return self._distinct("group_id")

    @cached_property
    def clusters(self) -> list[str]:
        """Sorted ids or names of the clusters of these groups."""
        return self._distinct("cluster")

    def _distinct(self, column: str) -> list[str]:
        found: set[str] = set()
        for name in ("rebalance", "lag", "transactional_commit", "share_delivery"):
            for batch in self._batches(name, [column]):
                found.update(pc.unique(batch.column(0)).to_pylist())
        return sorted(found)

    def similar_groups(self, group: str) -> list[str]:
        """Return up to five group ids that resemble `group`, best match first, for error messages."""
        folded = group.casefold()
        within = [each for each in self.groups if folded and folded in each.casefold()]
        close = difflib.get_close_matches(group, self.groups, n=5, cutoff=0.6)
        return list(dict.fromkeys([*close, *within]))[:5]

    # --- damage ---

    @property
    def damage(self) -> Sequence[Damage]:
        """What of the logs could not be read or was never found; empty for logs without damage."""
        return [each for each in self._damage[0] if not each.recovered]

    @property
    def recovered(self) -> Sequence[Damage]:
        """What could not be read but was found in another copy of the log."""
        return [each for each in self._damage[0] if each.recovered]

    @property
    def damaged(self) -> Mapping[Key, Damage]:
        """The rebalances, by key, that damage may have changed."""
        return self._damage[1]

    @cached_property
    def _damage(self) -> tuple[list[Damage], dict[Key, Damage]]:
        from konvene.pipeline.answers.damage_tables import find_damage

        return find_damage(self)

    # --- everything else ---

    def matching(
        self, table: str, wanted: pc.Expression | None = None, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """Return the table's rows that an expression selects, with only these columns if given."""
        return [row for batch in self.batches(table, wanted, columns) for row in batch.to_pylist()]

    def batches(
        self, table: str, wanted: pc.Expression | None = None, columns: Sequence[str] | None = None
    ) -> Iterable[pa.RecordBatch]:
        """Yield the rows that an expression selects as batches, each with the columns in this order."""
        for batch in self._batches(table, columns, wanted):
            yield batch.select(list(columns)) if columns else batch

    def rows(self, table: str, groups: Sequence[str] = (), columns: Sequence[str] | None = None) -> list[Row]:
        """Return the table's rows of these groups (empty: all groups), with only these columns if given."""
        found: list[Row] = []
        wanted = pc.field("group_id").isin(list(groups)) if groups else None
        for batch in self._batches(table, columns, wanted):
            found.extend(batch.to_pylist())
        return found

    def rows_by_group(self, table: str, groups: Sequence[str]) -> dict[tuple[str, str], list[Row]]:
        """Return the table's rows of these groups, by pairs of cluster and group id."""
        found: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows(table, groups):
            found[row["cluster"], row["group_id"]].append(row)
        return found

    def count(self, table: str) -> int:
        return sum(batch.num_rows for batch in self._batches(table, [TABLES[table].schema.names[0]]))

    def _batches(
        self, table: str, columns: Sequence[str] | None = None, wanted: pc.Expression | None = None
    ) -> Iterable[pa.RecordBatch]:
        if self._cluster is not None:
            of_cluster = pc.field("cluster") == self._cluster
            wanted = of_cluster if wanted is None else of_cluster & wanted
        if table in self._tables:
            chosen = self._tables[table]
            chosen = chosen if wanted is None else chosen.filter(wanted)
            yield from (chosen.select(list(columns)) if columns else chosen).to_batches()
        elif self._warehouse is not None:
            from konvene.pipeline.warehouse import read

            yield from read.batches(self._warehouse, table, columns, wanted)


def _generation(row: Row) -> Generation:
    """Return the generation of a row of `group_metadata`. Version 0 has no rebalance timeout: the session
    timeout is used instead."""
    members = {
        m["member_id"]: GenerationMember(
            m["session_timeout"],
            m["rebalance_timeout"] if m["rebalance_timeout"] >= 0 else m["session_timeout"],
            m["group_instance_id"],
        )
        for m in row["members"] or ()
    }
    return Generation(row["generation"], row["offset"], members)
