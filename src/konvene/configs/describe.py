"""Build the results of DescribeConfigs: each setting with its value, source and synonyms.

The rules are Kafka's, including its oddities. The source of a value is that of its first synonym, and
synonyms before the setting's own broker name are omitted: a topic whose retention comes from
`log.retention.hours` shows the right `retention.ms` with the source default. A password has no value, nor has
an unknown name. Internal settings are shown only if they are set. With `konvene.streams.mode=kip` those of
warm-ups are always shown, because KIP-1071 does not hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import dropwhile
from typing import NamedTuple

from konvene.configs.broker.table import BROKER
from konvene.configs.config import BrokerConfig, Source, base_name, base_setting
from konvene.configs.effective import group_defaults, topic_values
from konvene.configs.group import GROUP, LIMITS, WARMUPS
from konvene.configs.setting import Setting, Value
from konvene.configs.topic import TOPIC

__all__ = ["Described", "Synonym", "describe_broker", "describe_cluster", "describe_group", "describe_topic"]


class Synonym(NamedTuple):
    """A setting that determines a described value, with its own value and source (ConfigSynonym in Kafka)."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """A setting in a DescribeConfigs response.

    `synonyms` are in descending precedence; `kind` is the code of the type, 0 for an unknown setting.
    """

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    kind: int
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> tuple[Described, ...]:
    """Return the descriptions of a topic's settings: those with these names, or all of them."""
    values = topic_values(broker, overrides)
    return _described(TOPIC, values, overrides, Source.TOPIC, broker, names, set(overrides))


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> tuple[Described, ...]:
    """Return the descriptions of a group's settings: those with these names, or all of them.

    The values are those that were set, without clamping to the broker's limits.
    """
    values = group_defaults(broker) | {"streams.assignor.name": broker.words("group.streams.assignors")[0]}
    values.update((name, GROUP[name].parse(text)) for name, text in overrides.items() if name in GROUP)
    set_on_broker = {name for name, row in GROUP.items() if any(broker_sets(broker, s) for s in row.synonyms)}
    shown = set(overrides) | set_on_broker | _shown_warmups(broker)
    return _described(GROUP, values, overrides, Source.GROUP, broker, names, shown)


def describe_broker(broker: BrokerConfig, names: Collection[str] | None = None) -> tuple[Described, ...]:
    """Return the descriptions of this broker's settings (the BROKER resource with its id)."""
    strangers = {name for layer in _layers(broker) for name in layer if name not in BROKER}
    warmups = {f"group.{name}" for name in _shown_warmups(broker)}
    warmups |= {bound for name in _shown_warmups(broker) for bound in LIMITS.get(name, ()) if bound}
    shown = (
        name
        for name, row in BROKER.items()
        if not row.internal or name in warmups or broker_sets(broker, name)
    )
    return tuple(
        _described_broker(name, broker, _synonyms(broker, name, _chain(name)))
        for name in _wanted((*shown, *strangers), names)
    )


def describe_cluster(broker: BrokerConfig, names: Collection[str] | None = None) -> tuple[Described, ...]:
    """Return the descriptions of the cluster's dynamic settings (the BROKER resource without a name)."""
    entries = []
    for name in _wanted(broker.cluster, names):
        synonyms = _synonyms(broker, name, _chain(name))
        only = tuple(synonym for synonym in synonyms if synonym.source is Source.CLUSTER)
        entry = _described_broker(name, broker, only)
        entries.append(entry if entry.sensitive else entry._replace(value=broker.cluster[name]))
    return tuple(entries)


def broker_sets(broker: BrokerConfig, name: str) -> bool:
    """Return True if a broker setting is set, dynamically or statically, even if to its default."""
    return any(name in layer for layer in _layers(broker))


def _shown_warmups(broker: BrokerConfig) -> set[str]:
    return set(WARMUPS) if broker["konvene.streams.mode"] == "kip" else set()


def _described(
    table: Mapping[str, Setting],
    values: Mapping[str, Value],
    overrides: Mapping[str, str],
    own: Source,
    broker: BrokerConfig,
    names: Collection[str] | None,
    explicit: Collection[str],
) -> tuple[Described, ...]:
    """Return the descriptions of a topic's or group's settings.

    `own`: the source of its overrides. `explicit`: names that are described although they are internal.
    """
    entries = []
    for name in _wanted((n for n, row in table.items() if not row.internal or n in explicit), names):
        row = table[name]
        text = row.render(values[name])
        synonyms = _own_default(row) if own is Source.GROUP else ()
        if row.synonyms:
            synonyms = _synonyms(broker, row.synonyms[0], _chain(row.synonyms[0]))
        if name in overrides:
            synonyms = (Synonym(name, text, own), *synonyms)
        entries.append(
            Described(name, text, _source(synonyms), False, row.sensitive, synonyms, row.kind, row.sentence)
        )
    return tuple(entries)


def _own_default(row: Setting) -> tuple[Synonym, ...]:
    text = row.render(row.default)
    return () if text is None else (Synonym(row.name, text, Source.DEFAULT),)


def _described_broker(name: str, broker: BrokerConfig, synonyms: tuple[Synonym, ...]) -> Described:
    row = BROKER.get(name)
    if row is None:
        return _described_elsewhere(name, broker, synonyms)
    text = None if row.sensitive else row.render(broker[name])
    source, read_only = _source(synonyms), row.dynamic == "no"
    return Described(name, text, source, read_only, row.sensitive, synonyms, row.kind, row.sentence)


def _described_elsewhere(name: str, broker: BrokerConfig, synonyms: tuple[Synonym, ...]) -> Described:
    """Return the description of a setting of one listener, or of one that is unknown, which has no value."""
    row = base_setting(name)
    if row is None or row.sensitive:
        return Described(name, None, _source(synonyms), True, True, synonyms, row.kind if row else 0, None)
    text = next((text for layer in _layers(broker) if (text := layer.get(name)) is not None), None)
    return Described(name, text, _source(synonyms), True, False, synonyms, row.kind, None)


def _source(synonyms: tuple[Synonym, ...]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT


def _synonyms(broker: BrokerConfig, name: str, chain: tuple[str, ...]) -> tuple[Synonym, ...]:
    """Return the values of a broker setting and its fallbacks (`chain`) with their sources, by precedence.

    Those before the first value of the setting `name` itself are omitted.
    """
    row = base_setting(name)
    hidden = row is None or row.sensitive
    found = (
        Synonym(one, None if hidden else text, source)
        for source, text_of in _lookups(broker)
        for one in chain
        if (text := text_of(one)) is not None
    )
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def _chain(name: str) -> tuple[str, ...]:
    """Return the names of a broker setting and its fallbacks."""
    if name in BROKER:
        return (name, *BROKER[name].synonyms)
    base = base_name(name)
    return (name, base) if base in BROKER else (name,)


def _lookups(broker: BrokerConfig) -> Iterator[tuple[Source, Callable[[str], str | None]]]:
    yield Source.BROKER, broker.broker.get
    yield Source.CLUSTER, broker.cluster.get
    yield Source.STATIC, broker.static.get
    yield Source.DEFAULT, _default_text


def _default_text(name: str) -> str | None:
    row = BROKER.get(name)
    return None if row is None else row.render(row.default)


def _layers(broker: BrokerConfig) -> tuple[Mapping[str, str], ...]:
    return broker.broker, broker.cluster, broker.static


def _wanted(known: Collection[str] | Iterator[str], names: Collection[str] | None) -> list[str]:
    """Return those of the `known` names that are in `names`, sorted; without `names` all of them."""
    return sorted(name for name in known if not names or name in names)
