"""The one error family of configuration: what an operator or a client asked for and cannot have.

Every error carries the wire code it is answered with and a text that names the key, the value and
the bound, in the words clients know from Kafka. A text never shows the value of a password.
What is still ugly: Kafka answers a refused change of a *broker's* configuration with
INVALID_REQUEST and any other refused change with INVALID_CONFIG; `RefusedForBroker` keeps that.
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
    "UnreadableProperties",
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
    """A name that no table knows; `nearest` are the known names most like it."""

    def __init__(self, name: str, level: str, nearest: tuple[str, ...] = (), where: str = "") -> None:
        self.name, self.level, self.nearest, self.where = name, level, nearest, where
        hint = f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
        super().__init__(f"{_at(where)}Unknown {level} config name: {name}{hint}")


class ConflictingConfigs(ConfigError):
    """Values that are right one by one and wrong together."""


class UnreadableProperties(ConfigError):
    """Text that is not a properties file."""


class ManyConfigErrors(ConfigError):
    """Everything that is wrong with one file and its overrides, so that it can be mended at once."""

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors))


class BadRequest(ConfigError):
    """A request to alter that means nothing: a missing value, an unknown operation, a key named twice."""

    code = INVALID_REQUEST


class RefusedForBroker(ConfigError):
    """A change of a broker's configuration that cannot be made while the broker runs."""

    code = INVALID_REQUEST


def _at(where: str) -> str:
    return f"{where}: " if where else ""
