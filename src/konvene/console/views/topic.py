"""One topic: partitions, settings, and the groups that have committed offsets in it."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.client.admin.admin import TOPIC, ConfigEntry
from konvene.client.net.cluster import Topic, TopicPartition
from konvene.console.views.view import Row, Sections, View

__all__ = ["TopicView"]


class TopicView(View):
    """The view `topic`, of the topic `topic`."""

    arguments = ("topic",)

    async def build(self) -> Sections:
        name = self.given["topic"]
        topic = next((t for t in await self.watch.topics() if t.name == name), None)
        if topic is None:
            return {"facts": self.facts(name=name, exists=False)}
        partitions = [TopicPartition(name, p.partition) for p in topic.partitions]
        ends, starts = await self.watch.ends(partitions), await self.watch.starts(partitions)
        configs = await self.watch.configs(TOPIC, name)
        facts = {"name": name, "id": str(topic.topic_id), "exists": True, "internal": topic.is_internal}
        return {
            "facts": self.facts(**facts),
            "partitions": _partition_rows(topic, starts, ends),
            "configs": {entry.name: _config_row(entry) for entry in configs},
            "groups": self._group_rows(ends),
        }

    def _group_rows(self, ends: Mapping[TopicPartition, int]) -> dict[str, Row]:
        rows = {}
        commits = self.watch.tail.commits
        for group in commits.group_ids:
            if self.given["topic"] not in commits.topics_of(group):
                continue
            here = {tp: at.offset for tp, at in commits.of(group).items() if tp in ends}
            lag = sum(max(ends[tp] - offset, 0) for tp, offset in here.items())
            rows[group] = {"id": group, "lag": lag, "partitions": len(here)}
        return rows


def _partition_rows(
    topic: Topic, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, Row]:
    rows = {}
    for p in topic.partitions:
        tp = TopicPartition(topic.name, p.partition)
        start, end = starts.get(tp), ends.get(tp)
        rows[str(p.partition)] = {
            "partition": p.partition, "leader": p.leader if p.leader >= 0 else None,
            "replicas": list(p.replicas), "isr": list(p.isr), "offline": list(p.offline), "start": start,
            "end": end, "records": None if start is None or end is None else end - start,
        }  # fmt: skip
    return rows


def _config_row(entry: ConfigEntry) -> Row:
    return {
        "name": entry.name, "value": None if entry.is_sensitive else entry.value, "source": entry.source,
        "is_default": entry.is_default, "read_only": entry.read_only, "sensitive": entry.is_sensitive,
    }  # fmt: skip
