"""`konvene topics`: the actions of `kafka-topics`, each as a command."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from konvene.cli.name_completion import complete_topics
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import note, print_json
from konvene.cli.positional import explicit, one_name
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.client.admin.admin import ConfigEntry
    from konvene.client.net.cluster import Topic

F = TypeVar("F", bound=Callable[..., object])


@click.group()
def topics() -> None:
    """List, create, describe, alter and delete topics."""


_pattern = click.option(
    "--topic",
    "pattern",
    metavar="REGEX",
    shell_complete=complete_topics,
    help="Regular expression for whole topic names; commas separate alternatives.",
)


class Selection(NamedTuple):
    """The topics that the command line selects: those in `names`, those that match `pattern`, or all."""

    names: tuple[str, ...]
    pattern: str | None

    def of(
        self, found: Sequence[Topic], exclude_internal: bool = False, *, if_exists: bool | None = None
    ) -> list[Topic]:
        """Return the selected ones of the topics that were found.

        Fails for a missing one, and if none matches the pattern, unless `if_exists`. None: an empty result is
        no failure."""
        existing = {t.name for t in found}
        for name in self.names:
            if name not in existing and not if_exists:
                fail(f"there is no topic {name}", _SEE_LIST)
        try:
            wanted = re.compile((self.pattern or "").strip("\"'").replace(",", "|"))
        except re.error as error:
            raise click.UsageError(f"--topic {self.pattern} is not a regular expression: {error}.") from None
        selected = [
            t
            for t in found
            if (t.name in self.names if self.names else self.pattern is None or wanted.fullmatch(t.name))
            and not (exclude_internal and t.is_internal)
        ]
        if not selected and self.pattern is not None and if_exists is False:
            fail(f"no topic matches {self.pattern}", _SEE_LIST)
        return selected


_SEE_LIST = "`konvene topics list` shows the existing topics."


def _topics_selection(required: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds TOPIC... and --topic REGEX to a command, passed as the parameter
    `selection`."""

    def decorate(command: F) -> F:
        @click.argument("words", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
        @_pattern
        @functools.wraps(command)
        def wrapped(*args: object, words: tuple[str, ...], pattern: str | None, **kwargs: object) -> object:
            if words and not explicit("pattern"):
                pattern = None  # That of a profile.
            if (words and pattern is not None) or (required and not words and pattern is None):
                raise click.UsageError("Give TOPIC... or --topic REGEX.")
            return command(*args, selection=Selection(words, pattern), **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


@topics.command("list")
@cluster_options
@json_option
@_pattern
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics.")
def list_(connect: Connect, as_json: bool, pattern: str | None, exclude_internal: bool) -> None:
    """List topics."""

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            found = Selection((), pattern).of(await Admin(cluster).list_topics(), exclude_internal)
        if as_json:
            print_json([_summary(t) for t in found])
        else:
            for t in found:
                click.echo(t.name)

    run(job)


@topics.command()
@cluster_options
@json_option
@one_name("topic", complete_topics)
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions [default: the broker's].")
@click.option("--replication-factor", type=click.IntRange(1), help="Number of replicas.")
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic setting; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
def create(
    connect: Connect, as_json: bool, topic: str, partitions: int | None, replication_factor: int | None,
    configs: tuple[str, ...], if_not_exists: bool,
) -> None:  # fmt: skip
    """Create a topic."""
    settings = {}
    for text in configs:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--config {text}: write NAME=VALUE.")
        settings[name.strip()] = value.strip()

    async def job() -> None:
        from konvene.client.admin.admin import Admin
        from konvene.client.errors import KafkaError

        created = True
        async with connect() as cluster:
            try:
                await Admin(cluster).create_topic(
                    topic, partitions=partitions or -1, replication_factor=replication_factor or -1,
                    configs=settings,
                )  # fmt: skip
            except KafkaError as error:
                if error.name != "TOPIC_ALREADY_EXISTS" or not if_not_exists:
                    raise
                created = False
        if as_json:
            print_json({"topic": topic, "created": created})
        elif created:
            click.echo(f"Created topic {topic}.")
        else:
            note(f"Topic {topic} already exists.")

    run(job)


@topics.command()
@cluster_options
@json_option
@_topics_selection()
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics.")
@click.option("--if-exists", is_flag=True, help="Do not fail if no topic matches.")
def describe(
    connect: Connect, as_json: bool, selection: Selection, exclude_internal: bool, if_exists: bool
) -> None:
    """Show the partitions, leaders, replicas and settings of topics."""

    async def job() -> None:
        from konvene.client.admin.admin import TOPIC, Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            found = selection.of(await admin.list_topics(), exclude_internal, if_exists=if_exists)
            settings = {t.name: await admin.describe_configs(TOPIC, t.name) for t in found}
        if as_json:
            print_json([_described(t, settings[t.name]) for t in found])
        else:
            for t in found:
                _print_topic(t, settings[t.name])

    run(job)


@topics.command()
@cluster_options
@json_option
@_topics_selection(required=True)
@click.option(
    "--partitions", type=click.IntRange(1), required=True, help="The new, larger number of partitions."
)
@click.option("--if-exists", is_flag=True, help="Do not fail if no topic matches.")
def alter(connect: Connect, as_json: bool, selection: Selection, partitions: int, if_exists: bool) -> None:
    """Increase the number of partitions of topics. Keys may map to other partitions afterwards."""

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            found = selection.of(await admin.list_topics(), if_exists=if_exists)
            names = [t.name for t in found]
            for name in names:
                await admin.create_partitions(name, partitions)
        if as_json:
            print_json({"altered": names, "partition_count": partitions})
        else:
            for name in names:
                click.echo(f"Topic {name} has {counted(partitions, 'partition')} now.")

    run(job)


@topics.command()
@cluster_options
@json_option
@_topics_selection(required=True)
@click.option("--if-exists", is_flag=True, help="Do not fail if no topic matches.")
def delete(connect: Connect, as_json: bool, selection: Selection, if_exists: bool) -> None:
    """Delete topics with all their records."""

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            found = selection.of(await admin.list_topics(), if_exists=if_exists)
            names = [t.name for t in found]
            if names:
                await admin.delete_topics(names)
        if as_json:
            print_json({"deleted": names})
        else:
            for name in names:
                click.echo(f"Deleted topic {name}.")

    run(job)


def _summary(t: Topic) -> dict[str, object]:
    return {
        "topic": t.name,
        "topic_id": str(t.topic_id),
        "is_internal": t.is_internal,
        "partition_count": len(t.partitions),
        "replication_factor": _replication_factor(t),
    }


def _described(t: Topic, settings: Sequence[ConfigEntry]) -> dict[str, object]:
    partitions = [
        {
            "partition": p.partition,
            "leader": p.leader if p.leader >= 0 else None,
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "offline": list(p.offline),
        }
        for p in t.partitions
    ]
    return _summary(t) | {"configs": _changed(settings), "partitions": partitions}


def _print_topic(t: Topic, settings: Sequence[ConfigEntry]) -> None:
    """Print a topic as `kafka-topics --describe` does: a line for the topic and one for each partition."""
    configs = ",".join(f"{k}={v}" for k, v in _changed(settings).items())
    click.echo(
        f"Topic: {t.name}\tTopicId: {t.topic_id}\tPartitionCount: {len(t.partitions)}\t"
        f"ReplicationFactor: {_replication_factor(t)}\tConfigs: {configs}"
    )
    for p in t.partitions:
        leader = str(p.leader) if p.leader >= 0 else "none"
        replicas, isr = ",".join(map(str, p.replicas)), ",".join(map(str, p.isr))
        click.echo(
            f"\tTopic: {t.name}\tPartition: {p.partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        )


def _replication_factor(t: Topic) -> int:
    return len(t.partitions[0].replicas) if t.partitions else 0


def _changed(settings: Sequence[ConfigEntry]) -> Mapping[str, str | None]:
    """Return the settings that differ from their defaults, formatted as by Kafka's tool."""
    return {c.name: c.value for c in settings if not c.is_default and not c.is_sensitive}
