"""Errors of configurations: invalid settings of operators and clients.

Each error has the error code of its response and a message with the key, the value and the bound, in Kafka's
words. A message never shows a password. Kafka answers a rejected change of a *broker's* configuration with
INVALID_REQUEST and any other with INVALID_CONFIG; `RefusedForBroker` keeps that.
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
    """A configuration that cannot be used."""

    code = INVALID_CONFIG


class InvalidValue(ConfigError):
    """A value of the wrong kind or out of its bounds."""

    def __init__(self, name: str, value: object, why: str, where: str = "") -> None:
        self.name, self.value, self.why, self.where = name, value, why, where
        super().__init__(f"{_at(where)}Invalid value {value} for configuration {name}: {why}")


class UnknownConfig(ConfigError):
    """An unknown name; `nearest` are similar known names."""

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
    """A change of a broker's configuration that needs a restart."""

    code = INVALID_REQUEST


def _at(where: str) -> str:
    return f"{where}: " if where else ""
