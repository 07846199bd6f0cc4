"""What part of a group a command is about: topics by the words of Kafka's two tools, and internal topics.

    --topic, --all-topics                     of any group, as `kafka-consumer-groups` has them
    --input-topic, --all-input-topics         of a streams group, as `kafka-streams-groups` has them
    --input-topics A,B                        the same, as KIP-1071 has it

For a streams group they mean the same: the topics that the application reads and that others write. What it
writes for itself is left alone, as in Kafka, and can be deleted: `--delete-internal-topic`,
`--delete-all-internal-topics`, `--internal-topics`. A topic counts as internal if the topology says so and
its name does: so nobody's own topic goes with a group.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from konvene.cli.options import Failure, failure_of
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.cli.groups.reset_plan import Topics
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.streams_groups import StreamsGroupDescription

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Scope", "delete_topics", "internal_topics", "scope_options", "streams_group", "words_of"]


class Scope(NamedTuple):
    """Which topics are meant; None for all that the group has committed, or all that a file names."""

    topics: Topics | None
    of_streams: bool = False
    """Whether it was said in words that only streams groups have."""
    by_list: bool = False
    """Whether with `--input-topics`, which says where to when nothing else does: to the earliest offset."""


def scope_options(command: F) -> F:
    """All of the words above; the parameter `scope` is a `Scope`, None where nothing was said."""

    @click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC[:0,1]",
        help="A topic, or some of its partitions; repeatable.",
    )
    @click.option(
        "--input-topic",
        "inputs",
        multiple=True,
        metavar="TOPIC[:0,1]",
        help="The same, of a streams group.",
    )
    @click.option(
        "--input-topics",
        "lists",
        multiple=True,
        metavar="TOPIC,TOPIC",
        help="Whole topics of a streams group; where nothing says where to, to the earliest offset.",
    )
    @click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
    @click.option("--all-input-topics", is_flag=True, help="The same, of a streams group's input topics.")
    @functools.wraps(command)
    def wrapped(
        *args: Any, topics: tuple[str, ...], inputs: tuple[str, ...], lists: tuple[str, ...],
        all_topics: bool, all_input_topics: bool, **kwargs: Any,
    ) -> Any:  # fmt: skip
        given = {
            "--all-topics": all_topics, "--all-input-topics": all_input_topics,
            "--topic": topics, "--input-topic": inputs, "--input-topics": lists,
        }  # fmt: skip
        said = [name for name, value in given.items() if value]
        if len(said) > 1:
            raise click.UsageError(f"{' and '.join(said)} contradict each other: give one of them.")
        words = (*topics, *inputs, *(word for text in lists for word in words_of(text)))
        scope = Scope(_topics(words), bool(inputs or lists or all_input_topics), bool(lists))
        return command(*args, scope=scope if said else None, **kwargs)

    return wrapped  # type: ignore[return-value]


def words_of(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _topics(words: Sequence[str]) -> Topics | None:
    from konvene.cli.groups.reset_plan import BadInput, read_topics

    try:
        return read_topics(words) or None
    except BadInput as error:
        raise click.UsageError(f"{error}.") from None


async def streams_group(admin: Admin, name: str) -> StreamsGroupDescription | None:
    """The streams group of that name; None where there is none, or where the cluster has no such groups."""
    from konvene.client.errors import KafkaError, UnsupportedVersion

    try:
        return await admin.describe_streams_group(name)
    except UnsupportedVersion:
        return None
    except KafkaError as error:
        if error.name in ("GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"):
            return None
        raise


# internal topics ------------------------------------------------------------------------------

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.*.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic"
)
"""How Kafka Streams names what it makes, as Kafka's tool sees it."""


def internal_topics(group: StreamsGroupDescription) -> list[str]:
    """What was made for the group and has such a name. What has another one is told and left."""
    found = []
    for topic in group.topology.internal_topics if group.topology is not None else ():
        if topic.startswith(f"{group.group_id}-") and _INTERNAL.fullmatch(topic):
            found.append(topic)
        else:
            note(
                f"The internal topic '{topic}' is not inferred as internal and thus will not be deleted with "
                f"the group '{group.group_id}'."
            )
    return found


async def delete_topics(admin: Admin, group: str, topics: Iterable[str]) -> tuple[list[str], list[Failure]]:
    """Delete internal topics one by one: what is gone, and why the others are not.

    One that is gone already is no failure: somebody deleted it before the group."""
    from konvene.client.errors import ClientError, KafkaError

    gone, failures = [], []
    for topic in topics:
        try:
            await admin.delete_topics([topic])
            gone.append(topic)
        except ClientError as error:
            if isinstance(error, KafkaError) and error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                note(f"There is no internal topic {topic} any more.")
                continue
            why = failure_of(error)
            failures.append(Failure(f"internal topic of group {group}: {why.message}", why.hint))
    return gone, failures
