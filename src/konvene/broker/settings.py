"""The effective settings of this broker: static ones, overridden by dynamic ones from the catalogue.

As Kafka's `DynamicBrokerConfig`: values change when a client alters the broker's or a group's configs. Each
change makes new immutable values, so a caller that keeps `config` keeps one consistent view.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.groups.heartbeat_intervals import RESPONSIVE


class BrokerSettings:
    """The effective settings of the broker and of each group, replaced as a whole when configs change."""

    __slots__ = ("config", "group_configs", "static_config")

    def __init__(self, static_config: BrokerConfig) -> None:
        self.static_config = static_config
        """The settings that the broker was started with."""
        self.config = static_config
        """The static settings with the cluster's dynamic ones over them."""
        self.group_configs = GroupConfigs(static_config)
        """The settings of each group."""

    def __repr__(self) -> str:
        return f"<settings of broker {self.static_config['node.id']}>"

    @property
    def holds_heartbeats(self) -> bool:
        """Return True if heartbeat responses without changes are held back until the group changes."""
        responsive = self.config["konvene.heartbeat.policy"] == RESPONSIVE
        return responsive and bool(self.config["konvene.heartbeat.hold.enable"])

    def apply_broker_configs(
        self,
        cluster_defaults: Mapping[str, str],
        node_overrides: Mapping[str, str],
        groups: Mapping[str, Mapping[str, str]],
    ) -> tuple[str, ...]:
        """Replace the dynamic settings of the broker and of all groups; return warnings for the log.

        `node_overrides` override `cluster_defaults`; `groups` has the configs of each group."""
        self.config, warnings = self.static_config.with_dynamic(cluster_defaults, node_overrides)
        self.group_configs = GroupConfigs(self.config, groups)
        return (*warnings, *self.group_configs.warnings)

    def apply_group_configs(self, group_id: str, overrides: Mapping[str, str]) -> tuple[str, ...]:
        """Replace the dynamic settings of one group; return warnings for the log."""
        self.group_configs = self.group_configs.with_group(group_id, overrides)
        return self.group_configs.warnings
