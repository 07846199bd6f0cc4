"""Settings of brokers, topics and groups: their definitions, values, validation and description.

    setting         the definition of a setting: type, default, bounds; parsing and rendering of values
    broker          all broker settings, in one table per subject
    topic, group    all settings of TOPIC resources, and of GROUP resources
    checks          conditions that several broker settings have to meet together
    errors          the exceptions for invalid settings
    config          the configuration of a broker: values, and the source of each value
    effective       the values that a topic or a group has, given its overrides and the broker's values
    group_configs   the values of all groups
    alter           the result of AlterConfigs and IncrementalAlterConfigs, and its validation
    listeners       the listeners of a broker, and the settings of each
    describe        the result of DescribeConfigs
    reference       the generated page docs/reference/configs.md

The package encodes nothing, opens no file and reads no clock.
"""

from __future__ import annotations

from konvene.configs.config import BrokerConfig, Origin, Source
from konvene.configs.errors import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "Origin", "Source"]
