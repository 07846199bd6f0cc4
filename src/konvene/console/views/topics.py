"""The list of all topics."""

from __future__ import annotations

from collections import Counter

from konvene.client.net.cluster import TopicPartition
from konvene.console.views.view import Row, Sections, View

__all__ = ["TopicsView"]

MAX_COUNTED = 2_000
"""Partitions whose records are counted, by name of the topic."""


class TopicsView(View):
    """The view `topics`."""

    interval_s = 2.0

    async def build(self) -> Sections:
        topics = await self.watch.topics()
        partitions = [TopicPartition(t.name, p.partition) for t in topics for p in t.partitions]
        counted = partitions[:MAX_COUNTED]
        ends, starts = await self.watch.ends(counted), await self.watch.starts(counted)
        records: Counter[str] = Counter()
        for tp, end in ends.items():
            records[tp.topic] += end - starts.get(tp, 0)
        known = {tp.topic for tp in ends}
        groups = self._groups_by_topic()
        rows: dict[str, Row] = {
            t.name: {
                "name": t.name, "id": str(t.topic_id), "partitions": len(t.partitions),
                "replication_factor": max((len(p.replicas) for p in t.partitions), default=None),
                "internal": t.is_internal, "records": records[t.name] if t.name in known else None,
                "groups": None if groups is None else groups[t.name],
            }
            for t in topics
        }  # fmt: skip
        return {"facts": self.facts(), "topics": rows}

    def _groups_by_topic(self) -> Counter[str] | None:
        """Return the number of groups with committed offsets by topic; None if the logs are not read."""
        tail = self.watch.tail
        if tail.state.state != "live":
            return None
        return Counter(topic for group in tail.commits.group_ids for topic in tail.commits.topics_of(group))
