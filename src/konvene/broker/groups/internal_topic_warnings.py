"""Warns of internal topics whose configs differ from the topology of their streams group.

KIP-1071: an existing topic keeps its replicas and its configs, whatever the topology requires; a difference
is logged and otherwise ignored. It is logged when a group's topology is compared with its topics, and when
the configs of such a topic are altered. A warning is logged once, and again only if it has ceased to apply in
between. The effective value of a config is compared, so a default may match the topology.

Nothing here is stored: a restarted broker logs all warnings again.
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

MAX_GROUPS = 10_000
"""Maximum number of groups to remember. Above it all are forgotten, and warnings may be logged again."""

REPLICAS = 1
"""Replicas of every topic: the cluster has one node."""


class InternalTopicWarnings:
    """Compares internal topics with the topologies of their groups, and logs each difference once."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._topologies: dict[str, ConfiguredTopology] = {}
        self._logged: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<internal topic warnings of {len(self._logged)} groups>"

    def observe(self, outcome: Outcome) -> None:
        """Check the groups whose configured topology (`SoftState.configured`) this outcome replaces."""
        for record in outcome.soft_records:
            if type(record) is SoftStateRecord and isinstance(record.soft, SoftState):
                configured = record.soft.configured
                if configured is not None and configured is not self._topologies.get(record.group_id):
                    self._check(record.group_id, configured)

    def configs_changed(self, topic: str | None) -> None:
        """Check the groups that use `topic`, whose configs were altered; with None check all groups."""
        for group_id, configured in list(self._topologies.items()):
            if topic is None or topic in configured.internal_topics:
                self._check(group_id, configured)

    def _check(self, group_id: str, configured: ConfiguredTopology) -> None:
        if len(self._topologies) >= MAX_GROUPS and group_id not in self._topologies:
            self._topologies.clear()
            self._logged.clear()
        self._topologies[group_id] = configured
        topics = self._node.catalogue.topics.by_name
        existing = {
            name: self._existing(required)
            for name, required in configured.internal_topics.items()
            if name in topics
        }
        logged = self._logged.pop(group_id, ())
        warnings = config_warnings(configured, existing)
        if warnings:
            self._logged[group_id] = warnings
        for warning in warnings:
            if warning not in logged:
                log.warning("group %s: %s", group_id, warning)

    def _existing(self, required: InternalTopic) -> ExistingTopic:
        """Return the replicas of the existing topic, and its values of the configs that `required` names.

        A value that equals the required one gets the same text, so that comparing texts is enough."""
        altered = self._node.catalogue.settings_of(ResourceType.TOPIC, required.name)
        values = topic_values(self._node.settings.config, altered)
        configs = {}
        for name, text in required.configs.items():
            setting = TOPIC.get(name)
            if setting is None:
                continue
            try:
                is_same = setting.parse(text) == values[name]
            except ConfigError:
                is_same = False
            configs[name] = text if is_same else setting.render(values[name]) or ""
        return ExistingTopic(REPLICAS, configs)
