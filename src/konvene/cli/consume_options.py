"""Options of `konvene consume` that consumers and share consumers have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from konvene.cli.options import fail

if TYPE_CHECKING:
    from konvene.client.net.cluster import Cluster

__all__ = ["parse_consumer_properties", "resolve_topics"]


def parse_consumer_properties(texts: Sequence[str]) -> dict[str, str]:
    """Parse the KEY=VALUE arguments of `--consumer-property`. Raises UsageError."""
    properties = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--consumer-property {text}: write KEY=VALUE.")
        properties[key.strip()] = value
    return properties


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
