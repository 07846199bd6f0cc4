"""`konvene configs`: what `kafka-configs` does for topics, brokers and groups.

Options and lines are those of Kafka's tool. Without `--all`, `describe` shows what was set on the thing
itself; with it, every setting and where its value comes from. `alter` changes what it is told and leaves the
rest (IncrementalAlterConfigs); as in Kafka's tool, deleting what was not set is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import print_json, text_of

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin, ConfigEntry


class Kind(NamedTuple):
    """A kind of thing that has settings."""

    word: str
    code: int
    """Kafka's number of the resource type."""
    source: str
    """Where a value comes from that was set on the thing itself."""


KINDS = {
    "topics": Kind("topic", 2, "DYNAMIC_TOPIC_CONFIG"),
    "brokers": Kind("broker", 4, "DYNAMIC_BROKER_CONFIG"),
    "groups": Kind("group", 32, "DYNAMIC_GROUP_CONFIG"),
}

ALL_BROKERS = "DYNAMIC_DEFAULT_BROKER_CONFIG"

_UNBRACKETED_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")


@click.group()
def configs() -> None:
    """Describe and alter the settings of topics, brokers and groups."""


_entity_type = click.option(
    "--entity-type", "kind", type=click.Choice(list(KINDS)), required=True, help="What has the settings."
)


@configs.command()
@cluster_options
@json_option
@_entity_type
@click.option("--entity-name", "name", metavar="NAME", help="Topic, broker id or group [default: each].")
@click.option("--entity-default", "default", is_flag=True, help="What all brokers share.")
@click.option("--all", "everything", is_flag=True, help="Also what was not set here, and its source.")
def describe(
    connect: Connect, as_json: bool, kind: str, name: str | None, default: bool, everything: bool
) -> None:
    """Show the settings of a topic, a broker or a group."""
    wanted = _entity(kind, name, default)

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            await cluster.refresh([])
            _is_there(admin, kind, wanted)
            names = await _names(admin, kind) if wanted is None else [wanted]
            found = []
            for each in names:
                entries = await admin.describe_configs(KINDS[kind].code, each, synonyms=True)
                source = _source(kind, each)
                found.append((each, [e for e in entries if everything or e.source == source]))
        if as_json:
            print_json([_document(kind, each, entries) for each, entries in found])
        else:
            for each, entries in found:
                _print_entity(kind, each, entries, everything)

    run(job)


@configs.command()
@cluster_options
@json_option
@_entity_type
@click.option("--entity-name", "name", metavar="NAME", help="Topic, broker id or group.")
@click.option("--entity-default", "default", is_flag=True, help="What all brokers share.")
@click.option(
    "--add-config", "added", multiple=True, metavar="K=V,K=[A,B]", help="Settings to set; [] around commas."
)
@click.option(
    "--add-config-file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Properties file of settings to set; --add-config wins over it.",
)
@click.option("--delete-config", "deleted", multiple=True, metavar="K,K", help="Settings to unset.")
def alter(
    connect: Connect, as_json: bool, kind: str, name: str | None, default: bool, added: tuple[str, ...],
    file: Path | None, deleted: tuple[str, ...],
) -> None:  # fmt: skip
    """Set and unset settings of a topic, a broker or a group.

    \b
    konvene configs alter --entity-type topics --entity-name orders --add-config retention.ms=1000
    konvene configs alter --entity-type groups --entity-name billing --delete-config share.auto.offset.reset
    """
    wanted = _entity(kind, name, default)
    if wanted is None:
        raise click.UsageError(
            "Give --entity-name NAME" + (" or --entity-default." if kind == "brokers" else ".")
        )
    changes: dict[str, str | None] = dict(_properties(file)) if file else {}
    for text in added:
        changes |= _settings(text)
    gone = [key for text in deleted for key in (part.strip() for part in text.split(",")) if key]
    both = sorted(set(gone) & set(changes))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be both set and unset.")
    if not changes and not gone:
        raise click.UsageError("Give --add-config or --delete-config (or both).")

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            await cluster.refresh([])
            _is_there(admin, kind, wanted)
            if gone:
                entries = await admin.describe_configs(KINDS[kind].code, wanted, synonyms=True)
                present = {s.name for e in entries for s in e.synonyms if s.source == _source(kind, wanted)}
                present |= {e.name for e in entries if e.source == _source(kind, wanted)}
                missing = [key for key in gone if key not in present]
                if missing:
                    where = _called(kind, wanted)
                    fail(f"{', '.join(missing)}: not set on {where}, so there is nothing to unset")
            await admin.alter_configs(
                KINDS[kind].code, wanted, changes | dict.fromkeys(gone), validate_only=False
            )
        if as_json:
            print_json(
                {"entity_type": kind, "entity_name": wanted or None, "added": changes, "deleted": gone}
            )
        else:
            shared = "" if wanted else "default "
            click.echo(f"Completed updating {shared}config for {_called(kind, wanted)}.")

    run(job)


# what is meant ------------------------------------------------------------------------------------


def _entity(kind: str, name: str | None, default: bool) -> str | None:
    """The name as the protocol has it: "" for what all brokers share, None where none was given."""
    if default:
        if kind != "brokers":
            raise click.UsageError("--entity-default is for brokers: only these share settings.")
        if name is not None:
            raise click.UsageError("--entity-name and --entity-default contradict each other.")
        return ""
    if kind == "brokers" and name is not None and not re.fullmatch(r"[0-9]{1,10}", name):
        raise click.UsageError(f"--entity-name {name} is not the id of a broker, which is a number.")
    if name == "":
        raise click.UsageError("--entity-name is empty.")
    return name


def _settings(text: str) -> dict[str, str | None]:
    """`a=b,c=[d,e]`: commas within brackets belong to the value."""
    found: dict[str, str | None] = {}
    for part in _UNBRACKETED_COMMA.split(text):
        key, separator, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not separator or not key:
            raise click.UsageError(f"--add-config {part.strip()}: write NAME=VALUE.")
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1].strip()
        found[key] = value
    return found


def _properties(path: Path) -> dict[str, str]:
    from konvene.client.net.settings import read_properties

    try:
        return read_properties(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        fail(f"{path} is not UTF-8: {error.reason} at byte {error.start}")
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


def _is_there(admin: Admin, kind: str, name: str | None) -> None:
    """Only a broker itself is asked for its settings: say at once that there is none."""
    nodes = admin.cluster.metadata.nodes
    if kind == "brokers" and name and int(name) not in nodes:
        known = ", ".join(str(node_id) for node_id in sorted(nodes))
        fail(f"there is no broker {name} in the cluster", f"There are {known}.")


async def _names(admin: Admin, kind: str) -> list[str]:
    """Every thing of a kind, as Kafka's tool goes through them."""
    if kind == "topics":
        return [t.name for t in await admin.list_topics()]
    if kind == "groups":
        listed = {g.group_id for g in await admin.list_groups()}
        return sorted(listed.union(await admin.list_config_resources(KINDS[kind].code)))
    return [*(str(node_id) for node_id in sorted(admin.cluster.metadata.nodes)), ""]


def _source(kind: str, name: str) -> str:
    return ALL_BROKERS if kind == "brokers" and not name else KINDS[kind].source


def _called(kind: str, name: str) -> str:
    return f"{KINDS[kind].word} {name}" if name else "brokers in the cluster"


# how it is shown ----------------------------------------------------------------------------------


def _print_entity(kind: str, name: str, entries: Sequence[ConfigEntry], everything: bool) -> None:
    """As `kafka-configs --describe` prints it."""
    if kind == "brokers" and not name:
        click.echo("Default configs for brokers in the cluster are:")
    else:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {KINDS[kind].word} {name} are:")
    for e in entries:
        synonyms = ", ".join(f"{s.source}:{s.name}={_value(s.value)}" for s in e.synonyms)
        sensitive = "true" if e.is_sensitive else "false"
        click.echo(f"  {e.name}={_value(e.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _value(value: str | None) -> str:
    return "null" if value is None else text_of(value) if value else ""


def _document(kind: str, name: str, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    return {
        "entity_type": kind,
        "entity_name": name or None,
        "configs": [
            {
                "name": e.name,
                "value": e.value,
                "source": e.source,
                "read_only": e.read_only,
                "is_sensitive": e.is_sensitive,
                "synonyms": [{"name": s.name, "value": s.value, "source": s.source} for s in e.synonyms],
            }
            for e in entries
        ],
    }
