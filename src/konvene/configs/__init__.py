"""Settings of brokers, topics and groups: tables of rows, and what can be derived from them.

    setting     a row, its kinds, parse and render      errors      the one error family
    broker      the names a broker knows (broker_*.py are its tables by theme)
    topic       the names of a TOPIC resource           group       those of a GROUP resource
    properties  Java's .properties text                 checks      values at odds with one another
    config      BrokerConfig: layers, look-up, origin   effective   what a topic or a group runs with
    group_configs  the settings of all groups as one value
    describe    DescribeConfigs                         alter       AlterConfigs, incremental or not
    reference   docs/reference/configs.md

It knows no wire format, no file and no clock, and imports nothing else of ours.
"""

from __future__ import annotations

from konvene.configs.config import BrokerConfig, Origin, Source
from konvene.configs.errors import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "Origin", "Source"]
