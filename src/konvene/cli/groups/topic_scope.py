"""Topic options of `konvene groups reset-offsets` and `delete-offsets`, and the internal topics of a group.

    --topic, --all-topics                     any group, as in `kafka-consumer-groups`
    --input-topic, --all-input-topics         streams groups, as in `kafka-streams-groups`
    --input-topics A,B                        streams groups, as in KIP-1071

For a streams group all of them mean the input topics of the application. Its internal topics stay as they
are, as in Kafka, unless `--delete-internal-topic`, `--delete-all-internal-topics` or `--internal-topics`
deletes them. A topic is internal if both the topology and its name mark it as internal: other topics are
never deleted with a group."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from konvene.cli.name_completion import complete_topics
from konvene.cli.options import Failure, failure_of
from konvene.cli.output import note

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.reset_plan import Topics
    from konvene.client.admin.streams_groups import StreamsGroupDescription

F = TypeVar("F", bound=Callable[..., object])

__all__ = ["Scope", "delete_topics", "internal_topics", "scope_options", "split_list"]


class Scope(NamedTuple):
    """The partitions whose offsets a command changes, as selected by its topic options."""

    topics: Topics | None
    """The selected topics and partitions. None selects all partitions with a committed offset, or with
    --from-file all partitions in the file."""
    is_streams_scope: bool = False
    """Whether an option was used that only streams groups have."""
    defaults_to_earliest: bool = False
    """Whether `--input-topics` was used, for which the earliest offset is the default."""


def scope_options(command: F) -> F:
    """Add the topic options to a command, passed as the parameter `scope`: a `Scope`, or None if no option is
    given."""

    @click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC[:0,1]",
        shell_complete=complete_topics,
        help="A topic, or some of its partitions; may be repeated.",
    )
    @click.option(
        "--input-topic",
        "inputs",
        multiple=True,
        metavar="TOPIC[:0,1]",
        shell_complete=complete_topics,
        help="An input topic of a streams group, or some of its partitions; may be repeated.",
    )
    @click.option(
        "--input-topics",
        "lists",
        multiple=True,
        metavar="TOPIC,TOPIC",
        shell_complete=complete_topics,
        help="Input topics of a streams group; reset to the earliest offset by default.",
    )
    @click.option("--all-topics", is_flag=True, help="All partitions with a committed offset.")
    @click.option(
        "--all-input-topics",
        is_flag=True,
        help="All input partitions of a streams group with a committed offset.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: object, topics: tuple[str, ...], inputs: tuple[str, ...], lists: tuple[str, ...],
        all_topics: bool, all_input_topics: bool, **kwargs: object,
    ) -> object:  # fmt: skip
        given = {
            "--all-topics": all_topics, "--all-input-topics": all_input_topics,
            "--topic": topics, "--input-topic": inputs, "--input-topics": lists,
        }  # fmt: skip
        used = [name for name, value in given.items() if value]
        if len(used) > 1:
            raise click.UsageError(f"{' and '.join(used)} cannot be used together.")
        selected = (*topics, *inputs, *(topic for text in lists for topic in split_list(text)))
        scope = Scope(_topics(selected), bool(inputs or lists or all_input_topics), bool(lists))
        return command(*args, scope=scope if used else None, **kwargs)

    return wrapped  # type: ignore[return-value]


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _topics(selected: Sequence[str]) -> Topics | None:
    from konvene.client.admin.reset_plan import BadInput, read_topics

    try:
        return read_topics(selected) or None
    except BadInput as error:
        raise click.UsageError(f"{error}.") from None


# internal topics ------------------------------------------------------------------------------

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.*.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic"
)
"""Names of internal topics of Kafka Streams, as Kafka's tool recognizes them."""


def internal_topics(group: StreamsGroupDescription) -> list[str]:
    """Return the internal topics of the group. Print a note about each one that the topology lists as
    internal and whose name does not confirm that."""
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
    """Delete internal topics one by one; return the deleted ones and the failures.

    A topic that does not exist any more is not a failure."""
    from konvene.client.errors import ClientError, KafkaError

    deleted, failures = [], []
    for topic in topics:
        try:
            await admin.delete_topics([topic])
            deleted.append(topic)
        except ClientError as error:
            if isinstance(error, KafkaError) and error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                note(f"The internal topic {topic} does not exist any more.")
                continue
            failure = failure_of(error)
            failures.append(Failure(f"internal topic of group {group}: {failure.message}", failure.hint))
    return deleted, failures
