"""The configuration of a broker: a value for each setting, and the source of each value.

The sources are Kafka's, in descending precedence: dynamic settings of this broker, dynamic settings of the
cluster, static settings (the properties file, with overrides from the command line), defaults. `load` reads
the static settings and returns notices for the operator; `with_dynamic` adds the dynamic ones and returns a
new configuration. A configuration is immutable, and a look-up is one dictionary access.

This module opens no file, and does not log. Limitation: values are typed by their setting, not by Python,
so `config[name]` is Any; `integer`, `flag`, `words` and `text` have static types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from konvene.configs.broker.table import (
    BROKER,
    CLUSTER_WIDE_OF_LISTENER,
    LISTENER,
    PLUGIN_PREFIXES,
    REMOVED,
    SINGLE_COPY,
)
from konvene.configs.checks import conflicts
from konvene.configs.errors import ConfigError, ConflictingConfigs, ManyConfigErrors, UnknownConfig
from konvene.configs.setting import Setting, Value
from konvene.properties import Entry, UnreadableProperties, parse_properties

__all__ = ["CLAMPED", "BrokerConfig", "Origin", "Source", "base_name", "base_setting", "nearest_names"]


class Source(IntEnum):
    """The source of a setting's value; the number is its ConfigSource in a DescribeConfigs response."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Origin(NamedTuple):
    """The source of a value, and where a static value is set: `server.properties:12` or `--set`."""

    source: Source
    where: str = ""


DEFAULT: Final = Origin(Source.DEFAULT)

# Dynamic settings whose stored values are clamped to their bounds, not rejected, after the bounds changed.
CLAMPED: Final = tuple(f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))

NAMES_OF_KIPS: Final = {"group.streams.assignor.name": "group.streams.assignors"}
"""Broker settings for which a KIP uses another name than Kafka."""

_DEFAULTS: Final[dict[str, Value]] = {name: row.default for name, row in BROKER.items()}


class BrokerConfig:
    """The values of all settings of one broker, read-only. Create it with `load`.

    `static`, `cluster` and `broker` have the texts of the static settings and of the dynamic settings of the
    cluster and of this broker; `places` has where each static text is set; `values` has the effective values,
    and `origins` the sources of those that are not defaults. All are by name. Settings of one listener
    (`listener.name.…`) are among them under their full names, if they are set.
    """

    __slots__ = ("broker", "cluster", "origins", "places", "static", "values")

    def __init__(
        self,
        values: Mapping[str, Value],
        origins: Mapping[str, Origin],
        static: Mapping[str, str],
        places: Mapping[str, str],
        cluster: Mapping[str, str] = MappingProxyType({}),
        broker: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.values: Mapping[str, Any] = values
        self.origins = origins
        self.static = static
        self.places = places
        self.cluster = cluster
        self.broker = broker

    def __repr__(self) -> str:
        layers = f"{len(self.static)} static, {len(self.cluster)} cluster, {len(self.broker)} broker"
        return f"<BrokerConfig node {self['node.id']}: {layers}>"

    @classmethod
    def load(
        cls,
        file_text: str | None = None,
        overrides: Iterable[tuple[str, str]] = (),
        file: str = "server.properties",
    ) -> tuple[BrokerConfig, tuple[str, ...]]:
        """Parse the text of a properties file, and overrides of it; return the configuration and notices.

        `file` is the name of the file in messages. Raises `ConfigError`.
        """
        notices: list[str] = []
        errors: list[ConfigError] = []
        given = _static_entries(file_text, overrides, file, notices)
        values = dict(_DEFAULTS)
        origins: dict[str, Origin] = {}
        for name, text, where in given.values():
            try:
                _add_static(name, text, where, values, origins, notices)
            except ConfigError as error:
                errors.append(error)
        _equate_node_ids(values, origins)
        errors.extend(ConflictingConfigs(words) for words in conflicts(values))
        if errors:
            raise errors[0] if len(errors) == 1 else ManyConfigErrors(tuple(errors))
        static = {name: text.strip() for name, text, _ in given.values()}
        places = {name: where for name, _, where in given.values()}
        return cls(values, origins, static, places), tuple(notices)

    def with_dynamic(
        self, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> tuple[BrokerConfig, tuple[str, ...]]:
        """Return the configuration with these dynamic settings instead of its current ones, and warnings.

        Never raises: a stored setting that cannot be used any more, because its value is invalid in this
        release or it is no longer dynamic, is left out with a warning, as in Kafka.
        """
        warnings: list[str] = []
        values = dict(_DEFAULTS)
        origins: dict[str, Origin] = {}
        for name, text in self.static.items():
            row = base_setting(name)
            if row is not None:
                values[name] = _single_copy(name, row.parse(text))
                origins[name] = Origin(Source.STATIC, self.places[name])
        _equate_node_ids(values, origins)
        for source, texts in ((Source.CLUSTER, cluster), (Source.BROKER, broker)):
            for name, text in texts.items():
                row = base_setting(name)
                if row is None:
                    continue  # one of a plugin, or one that a later release knew
                try:
                    _dynamic_only(row, name, source)
                    values[name] = _single_copy(name, row.parse(text))
                    origins[name] = Origin(source)
                except ConfigError as error:
                    warnings.append(f"{error}; the stored value is not used")
        _clamp(values, warnings)
        warnings.extend(conflicts(values))
        changed = BrokerConfig(values, origins, self.static, self.places, dict(cluster), dict(broker))
        return changed, tuple(warnings)

    # Looking values up.

    def __getitem__(self, name: str) -> Any:
        """Return the typed value of a setting; None if it is not set. Raises KeyError for an unknown name."""
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def integer(self, name: str) -> int:
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name] or "")

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(self.values[name] or ())

    def origin(self, name: str) -> Origin:
        """Return the source of a setting's value."""
        return self.origins.get(name, DEFAULT)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Return `log.dirs`, or `log.dir` if that is not set."""
        return self.words("log.dirs") or self.words("log.dir")


def base_name(name: str) -> str | None:
    """Return the broker setting that a setting `listener.name.…` overrides; None for any other name."""
    if not name.startswith(LISTENER):
        return None
    # listener.name.internal.ssl.protocol, or with a mechanism: listener.name.internal.plain.sasl.jaas.config
    rest = name.removeprefix(LISTENER).partition(".")[2]
    return rest if rest in BROKER else rest.partition(".")[2]


def base_setting(name: str) -> Setting | None:
    """Return the definition of a broker setting or of a setting `listener.name.…`; None if there is none."""
    return BROKER.get(base_name(name) or name)


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three known names that are similar to a name."""
    from difflib import get_close_matches  # only a mistake needs it

    return tuple(get_close_matches(name, tuple(known), n=3, cutoff=0.8))


def _static_entries(
    file_text: str | None, overrides: Iterable[tuple[str, str]], file: str, notices: list[str]
) -> dict[str, Entry]:
    """Return the static settings by name; an override takes precedence over an entry of the file."""
    given: dict[str, Entry] = {}
    try:
        entries = parse_properties(file_text or "", file)
    except UnreadableProperties as error:
        raise ConfigError(str(error)) from error
    for written in entries:
        entry = _with_kafka_name(written, notices)
        if entry.key in given:
            twice = f"{entry.key} is set twice; this value counts, not that of {given[entry.key].where}"
            notices.append(f"{entry.where}: {twice}")
        given[entry.key] = entry
    for key, value in overrides:
        entry = _with_kafka_name(Entry(key, value, "--set"), notices)
        given[entry.key] = entry
    return given


def _with_kafka_name(entry: Entry, notices: list[str]) -> Entry:
    """Return the entry under Kafka's name; if its name is one that only a KIP uses, add a notice."""
    name = NAMES_OF_KIPS.get(entry.key)
    if name is None:
        return entry
    notices.append(f"{entry.where}: {entry.key} is called {name} in Kafka")
    return Entry(name, *entry[1:])


def _add_static(
    name: str, text: str, where: str, values: dict[str, Value], origins: dict[str, Origin], notices: list[str]
) -> None:
    """Parse a static setting and add its value to `values` and its origin to `origins`, by name.

    `where` is its place, such as `server.properties:12`. If it has no effect, adds a line to `notices`.
    """
    row = base_setting(name)
    if row is None:
        notices.append(f"{where}: {name} {_reason_for_no_effect(name, where)}")
        return
    value = row.parse(text, where)
    values[name] = _single_copy(name, value)
    origins[name] = Origin(Source.STATIC, where)
    if row.unused:
        notices.append(f"{where}: {name} is Kafka's and changes nothing here")
    elif values[name] != value:
        notices.append(f"{where}: {name} is {value}; a single node keeps one copy, so 1 is used")


def _reason_for_no_effect(name: str, where: str) -> str:
    """Return why a setting that konvene lacks is accepted without effect, worded to follow its name.

    Raises UnknownConfig, with the place `where`, if the setting does not exist in Kafka either.
    """
    if name in REMOVED:
        return "was dropped by Kafka and changes nothing"
    if name.startswith(PLUGIN_PREFIXES):
        return "belongs to a Java plugin and changes nothing here"
    raise UnknownConfig(name, "broker", nearest_names(base_name(name) or name, BROKER), where)


def _single_copy(name: str, value: Value) -> Value:
    return 1 if name in SINGLE_COPY else value


_TWINS: Final = {"node.id": "broker.id", "broker.id": "node.id"}


def _equate_node_ids(values: dict[str, Value], origins: dict[str, Origin]) -> None:
    """Set `node.id` and its older name `broker.id` to the same value if only one of them is set."""
    for name, twin in _TWINS.items():
        if twin in origins and name not in origins:
            values[name], origins[name] = values[twin], origins[twin]
    if values["broker.id"] == -1:
        values["broker.id"] = values["node.id"]


def _dynamic_only(row: Setting, name: str, source: Source) -> None:
    if name != row.name:
        if source is Source.CLUSTER and row.name not in CLUSTER_WIDE_OF_LISTENER:
            raise ConfigError(f"{name} can be altered for one broker only")
        return
    if row.dynamic == "no":
        raise ConfigError(f"{row.name} cannot be altered while a broker runs")
    if row.dynamic == "per-broker" and source is Source.CLUSTER:
        raise ConfigError(f"{row.name} can be altered for one broker only")


def _clamp(values: dict[str, Value], warnings: list[str]) -> None:
    for name in CLAMPED:
        kind, _, what = name.removeprefix("group.").partition(".")
        low, high = values[f"group.{kind}.min.{what}"], values[f"group.{kind}.max.{what}"]
        value = values[name]
        held = max(low, min(value, high))  # type: ignore[type-var]
        if held != value:
            warnings.append(f"{name} is {value}, outside {low} to {high}; {held} is used")
            values[name] = held
