"""The settings of all groups as one value: what each runs with, made once and looked up at each request.

A group that says nothing itself shares one mapping with all others of its kind. A value never changes:
where a group's settings or the broker's change, another one takes its place (`with_group`, or made anew).
Settings of a group that cannot be used any more (they were accepted by a broker that knew better) are left
out whole, with a warning: a group is served at the defaults rather than not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from konvene.configs.effective import group_defaults, group_values
from konvene.configs.errors import ConfigError

__all__ = ["GroupConfigs"]


class GroupConfigs:
    """What groups run with. `warnings` is what an operator should see of how this value came about.

    `broker` is a `BrokerConfig`, or its values by name."""

    __slots__ = ("_broker", "_defaults", "_own", "warnings")

    def __init__(self, broker: Any, overrides: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._broker = broker
        self._defaults: Mapping[str, Any] | None = None
        self._own: dict[str, Mapping[str, Any]] = {}
        self.warnings: tuple[str, ...] = ()
        for group_id, told in (overrides or {}).items():
            self._take(group_id, told)

    def __repr__(self) -> str:
        return f"<GroupConfigs: {len(self._own)} groups of their own>"

    def of(self, group_id: str) -> Mapping[str, Any]:
        """Every group setting of this group by name, typed and within the broker's limits."""
        return self._own.get(group_id) or self.defaults

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What a group runs with that says nothing itself; worked out when it is first asked for."""
        if self._defaults is None:
            self._defaults = MappingProxyType(group_defaults(self._broker))
        return self._defaults

    def with_group(self, group_id: str, told: Mapping[str, str]) -> GroupConfigs:
        """The same, but for one group that says this now; nothing, if it says nothing any more."""
        other = GroupConfigs(self._broker)
        other._defaults = self.defaults
        other._own = {name: values for name, values in self._own.items() if name != group_id}
        if told:
            other._take(group_id, told)
        return other

    def _take(self, group_id: str, told: Mapping[str, str]) -> None:
        try:
            values, warnings = group_values(self._broker, told, group_id)
        except ConfigError as error:
            self.warnings += (f"group {group_id!r} runs at the defaults: {error}",)
        else:
            self._own[group_id] = MappingProxyType(values)
            self.warnings += warnings
