"""What the broker's log says of internal topics that are not as a streams group's topology wants them.

KIP-1071: a topic that exists keeps its replicas and its settings, whatever the topology says; where they
differ, that is logged and else ignored. It is logged when it is found: when a group's topology is held
against its topics, and when somebody alters the settings of one of these. Each remark is made once, until
it is not true any more. A setting counts by its value, wherever that comes from: a default may be what the
topology wants.

This decides nothing and keeps nothing that matters: a broker that starts anew says all of it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from konvene.cluster.state import ResourceType
from konvene.configs import ConfigError
from konvene.configs.effective import topic_values
from konvene.configs.topic import TOPIC
from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.groups.streams.group import SoftState
from konvene.groups.streams.topology.configure import (
    ConfiguredTopology,
    ExistingTopic,
    InternalTopic,
    config_warnings,
)

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.shard.contract import Outcome

log = logging.getLogger("konvene.groups")

REMEMBERED_GROUPS = 10_000
"""What was said of so many groups is known at most; then it is forgotten, and may be said again."""

REPLICAS = 1
"""Of every topic, for there is one node."""


class InternalTopicWarnings:
    """What was seen and said of each group."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._seen: dict[str, ConfiguredTopology] = {}
        self._said: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<remarks on the topics of {len(self._said)} groups>"

    def look(self, outcome: Outcome) -> None:
        """Something was decided: whose topology was held against its topics anew is looked at."""
        for record in outcome.soft_records:
            if type(record) is SoftStateRecord and isinstance(record.soft, SoftState):
                configured = record.soft.configured
                if configured is not None and configured is not self._seen.get(record.group_id):
                    self._look_at(record.group_id, configured)

    def altered(self, topic: str | None) -> None:
        """A topic's settings are others now; None: those of all may be."""
        for group_id, configured in list(self._seen.items()):
            if topic is None or topic in configured.internal_topics:
                self._look_at(group_id, configured)

    def _look_at(self, group_id: str, configured: ConfiguredTopology) -> None:
        if len(self._seen) >= REMEMBERED_GROUPS and group_id not in self._seen:
            self._seen.clear()
            self._said.clear()
        self._seen[group_id] = configured
        there = self._node.catalogue.topics.by_name
        existing = {
            name: self._existing(wanted)
            for name, wanted in configured.internal_topics.items()
            if name in there
        }
        before = self._said.pop(group_id, ())
        found = config_warnings(configured, existing)
        if found:
            self._said[group_id] = found
        for remark in found:
            if remark not in before:
                log.warning("group %s: %s", group_id, remark)

    def _existing(self, wanted: InternalTopic) -> ExistingTopic:
        """The topic as it is. A value that the topology writes in other words is told in its words."""
        told = self._node.catalogue.settings_of(ResourceType.TOPIC, wanted.name)
        values = topic_values(self._node.settings.config, told)
        configs = {}
        for name, text in wanted.configs.items():
            row = TOPIC.get(name)
            if row is None:
                continue
            try:
                is_same = row.parse(text) == values[name]
            except ConfigError:
                is_same = False
            configs[name] = text if is_same else row.render(values[name]) or ""
        return ExistingTopic(REPLICAS, configs)
