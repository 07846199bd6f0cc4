"""Configurations of all groups: effective values, computed once and looked up for each request.

Groups without overrides share one mapping. A value is immutable: if a group's or the broker's configuration
changes, a new value replaces it (`with_group`, or built anew). A group with overrides that are no longer
valid runs with the defaults, and a warning is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from konvene.configs.effective import group_defaults, group_values
from konvene.configs.errors import ConfigError
from konvene.configs.setting import Settings

__all__ = ["GroupConfigs"]


class GroupConfigs:
    """The effective settings of all groups, and warnings for the operator about invalid or clamped overrides.

    `broker` is a `BrokerConfig`, or its values by name; `overrides` are by group id.
    """

    __slots__ = ("_broker", "_defaults", "_own", "warnings")

    def __init__(self, broker: Settings, overrides: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._broker = broker
        self._defaults: Mapping[str, Any] | None = None
        self._own: dict[str, Mapping[str, Any]] = {}
        self.warnings: tuple[str, ...] = ()
        for group_id, texts in (overrides or {}).items():
            self._add(group_id, texts)

    def __repr__(self) -> str:
        return f"<GroupConfigs: {len(self._own)} groups of their own>"

    def of(self, group_id: str) -> Mapping[str, Any]:
        """Return all settings of a group by name, typed and clamped to the broker's limits."""
        return self._own.get(group_id) or self.defaults

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Return the settings of a group without overrides, computed on first use."""
        if self._defaults is None:
            self._defaults = MappingProxyType(group_defaults(self._broker))
        return self._defaults

    def with_group(self, group_id: str, overrides: Mapping[str, str]) -> GroupConfigs:
        """Return a copy with the overrides of one group replaced; an empty mapping removes them."""
        other = GroupConfigs(self._broker)
        other._defaults = self.defaults
        other._own = {name: values for name, values in self._own.items() if name != group_id}
        if overrides:
            other._add(group_id, overrides)
        return other

    def _add(self, group_id: str, overrides: Mapping[str, str]) -> None:
        try:
            values, warnings = group_values(self._broker, overrides, group_id)
        except ConfigError as error:
            self.warnings += (f"group {group_id!r} runs at the defaults: {error}",)
        else:
            self._own[group_id] = MappingProxyType(values)
            self.warnings += warnings
