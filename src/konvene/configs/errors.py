"""Errors for invalid settings in files, on the command line and in requests.

Each has the error code of a response, and a message that names the setting, the value and the bound, worded
as in Kafka. A message never shows a password. As in Kafka, a rejected change of a broker's settings is
answered with INVALID_REQUEST (`RefusedForBroker`), one of a topic's or group's with INVALID_CONFIG.
"""

from __future__ import annotations

__all__ = [
    "BadRequest",
    "ConfigError",
    "ConflictingConfigs",
    "InvalidValue",
    "ManyConfigErrors",
    "RefusedForBroker",
    "UnknownConfig",
]

INVALID_CONFIG = 40
INVALID_REQUEST = 42


class ConfigError(ValueError):
    """An invalid setting, or an invalid change of one."""

    code = INVALID_CONFIG


class InvalidValue(ConfigError):
    """A value of the wrong type or out of its bounds; `where` is its place in a file, if it has one."""

    def __init__(self, name: str, value: object, why: str, where: str = "") -> None:
        self.name, self.value, self.why, self.where = name, value, why, where
        super().__init__(f"{_at(where)}Invalid value {value} for configuration {name}: {why}")


class UnknownConfig(ConfigError):
    """A setting that does not exist; `nearest` are existing names that are similar."""

    def __init__(self, name: str, level: str, nearest: tuple[str, ...] = (), where: str = "") -> None:
        self.name, self.level, self.nearest, self.where = name, level, nearest, where
        hint = f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
        super().__init__(f"{_at(where)}Unknown {level} config name: {name}{hint}")


class ConflictingConfigs(ConfigError):
    """Values that are valid one by one but conflict with each other."""


class ManyConfigErrors(ConfigError):
    """All errors of one file and its overrides, so that they can be fixed at once."""

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors))


class BadRequest(ConfigError):
    """An invalid request: a missing value, an unknown operation, or a key named twice."""

    code = INVALID_REQUEST


class RefusedForBroker(ConfigError):
    """A rejected change of a broker's dynamic settings: invalid, or not possible without a restart."""

    code = INVALID_REQUEST


def _at(where: str) -> str:
    return f"{where}: " if where else ""
