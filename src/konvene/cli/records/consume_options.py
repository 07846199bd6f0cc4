"""Options of `konvene consume` that consumers and share consumers have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from konvene.cli.options import fail
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.client.consumer.settings import ConsumerSettings
    from konvene.client.net.cluster import Cluster
    from konvene.client.share.settings import ShareSettings

    S = TypeVar("S", ConsumerSettings, ShareSettings)

__all__ = ["ConsumeOptions", "parse_consumer_properties", "resolve_topics"]


class ConsumeOptions(NamedTuple):
    """The options of `konvene consume`, by the names of its parameters."""

    topic: str | None
    include: str | None
    group: str | None
    share_group: str | None
    acknowledge: str | None
    release: bool
    reject: bool
    partition: int | None
    offset: str | None
    from_beginning: bool
    max_messages: int | None
    timeout_ms: int | None
    isolation_level: str | None
    client_id: str
    assignors: tuple[str, ...]
    instance_id: str | None


def parse_consumer_properties(texts: Sequence[str], parse: Callable[[Mapping[str, str]], S]) -> S:
    """Parse the KEY=VALUE arguments of `--consumer-property` to settings with `parse`, and print a note about
    each property that this client does not have. Raises UsageError."""
    from konvene.client.errors import Misconfigured

    properties = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--consumer-property {text}: write KEY=VALUE.")
        properties[key.strip()] = value
    try:
        settings = parse(properties)
    except Misconfigured as error:
        raise click.UsageError(f"--consumer-property: {str(error).rstrip('.')}.") from None
    for name in settings.unknown:
        note(f"--consumer-property {name} is unknown and ignored.")
    return settings


async def resolve_topics(cluster: Cluster, topic: str | None, include: str | None) -> list[str]:
    """Return the given topic, or the topics whose whole names match the regular expression `include`. Raises
    UsageError or `Failure`."""
    if topic is not None:
        return [(await cluster.topic(topic)).name]
    assert include is not None
    try:
        pattern = re.compile(include)
    except re.error as error:
        raise click.UsageError(f"--include {include} is not a regular expression: {error}.") from None
    metadata = await cluster.refresh()
    names = sorted(n for n, t in metadata.topics.items() if pattern.fullmatch(n) and not t.is_internal)
    if not names:
        fail(f"no topic matches {include}", "`konvene topics list` shows the existing topics.")
    return names
