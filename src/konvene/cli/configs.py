"""`konvene configs`: the actions of `kafka-configs` for topics, brokers and groups.

`client_configs` has those for users, clients and IP addresses.

Options and output are those of Kafka's tool. `describe` shows the settings of the resource itself; with
`--all` every setting, with the source of its value. `alter` changes the given settings and keeps the others
(IncrementalAlterConfigs); as in Kafka's tool, deleting a setting that is not set is an error. Values that
are secrets are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from konvene.cli.client_configs import HIDDEN, change_of, describe_client_configs
from konvene.cli.config_entities import (
    CLIENT_TYPES,
    WITH_DEFAULTS,
    Entities,
    EntityCommand,
    entity_options,
)
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import print_json, text_of

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin, ConfigEntry


class Kind(NamedTuple):
    """A type of resource that has settings."""

    word: str
    code: int
    """Config resource type of the protocol."""
    source: str
    """Source of values that are set on the resource itself."""


KINDS = {
    "topics": Kind("topic", 2, "DYNAMIC_TOPIC_CONFIG"),
    "brokers": Kind("broker", 4, "DYNAMIC_BROKER_CONFIG"),
    "groups": Kind("group", 32, "DYNAMIC_GROUP_CONFIG"),
}

ALL_BROKERS = "DYNAMIC_DEFAULT_BROKER_CONFIG"

_SECRET = re.compile(r"password|secret|jaas\.config$|keystore\.key$")
"""Names of settings whose values are not printed."""
_UNBRACKETED_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")


@click.group()
def configs() -> None:
    """Describe and alter the settings of topics, brokers, groups, users, clients and IP addresses."""


@configs.command(cls=EntityCommand)
@cluster_options
@json_option
@entity_options
@click.option(
    "--all", "everything", is_flag=True, help="Show all settings with their sources, also inherited ones."
)
def describe(connect: Connect, as_json: bool, entities: Entities, everything: bool) -> None:
    """Describe the settings of topics, brokers or groups, the quotas of users, clients or IP addresses, or
    the SCRAM credentials of users.

    \b
    konvene configs describe --entity-type topics --entity-name orders
    konvene configs describe --entity-type users
    """
    if entities.type in CLIENT_TYPES:
        _run(connect, lambda admin: describe_client_configs(admin, entities, as_json))
        return
    kind = entities.type
    entity = _entity(kind, entities.names)

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            await cluster.refresh([])
            _is_there(admin, kind, entity)
            names = await _names(admin, kind) if entity is None else [entity]
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


@configs.command(cls=EntityCommand)
@cluster_options
@json_option
@entity_options
@click.option(
    "--add-config",
    "added",
    multiple=True,
    metavar="K=V,K=[A,B]",
    help="Settings to set; use [] around commas.",
)
@click.option(
    "--add-config-file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Properties file with settings to set; --add-config overrides it.",
)
@click.option("--delete-config", "deleted", multiple=True, metavar="K,K", help="Settings to delete.")
def alter(
    connect: Connect, as_json: bool, entities: Entities, added: tuple[str, ...], file: Path | None,
    deleted: tuple[str, ...],
) -> None:  # fmt: skip
    """Set and delete settings of a topic, a broker or a group, quotas of users, clients or IP addresses, or
    SCRAM credentials of a user.

    \b
    konvene configs alter --entity-type topics --entity-name orders --add-config retention.ms=1000
    konvene configs alter --entity-type groups --entity-name billing --delete-config share.auto.offset.reset
    konvene configs alter --user alice --add-config 'SCRAM-SHA-512=[iterations=8192,password=PASSWORD]'
    konvene configs alter --user alice --client-defaults --add-config producer_byte_rate=1048576
    """
    kind = entities.type
    if not entities.names:
        raise click.UsageError(
            "Give --entity-name NAME" + (" or --entity-default." if kind in WITH_DEFAULTS else ".")
        )
    changes: dict[str, str] = dict(_properties(file)) if file else {}
    for text in added:
        changes |= _settings(text)
    deleted_keys = [key for text in deleted for key in (part.strip() for part in text.split(",")) if key]
    both = sorted(set(deleted_keys) & set(changes))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be both set and deleted.")
    if not changes and not deleted_keys:
        raise click.UsageError("Give --add-config or --delete-config (or both).")
    if kind in CLIENT_TYPES:
        change = change_of(entities, changes, deleted_keys)
        _run(connect, change.apply)
        if as_json:
            print_json(change.document)
        else:
            click.echo(text_of(change.summary))
        return
    entity = _entity(kind, entities.names)
    assert entity is not None

    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            admin = Admin(cluster)
            await cluster.refresh([])
            _is_there(admin, kind, entity)
            if deleted_keys:
                entries = await admin.describe_configs(KINDS[kind].code, entity, synonyms=True)
                present = {s.name for e in entries for s in e.synonyms if s.source == _source(kind, entity)}
                present |= {e.name for e in entries if e.source == _source(kind, entity)}
                missing = [key for key in deleted_keys if key not in present]
                if missing:
                    where = _called(kind, entity)
                    fail(f"{', '.join(missing)}: not set on {where}, so it cannot be deleted")
            await admin.alter_configs(
                KINDS[kind].code, entity, {**changes, **dict.fromkeys(deleted_keys)}, validate_only=False
            )
        if as_json:
            print_json(
                {
                    "entity_type": kind,
                    "entity_name": entity or None,
                    "added": {k: HIDDEN if _SECRET.search(k) else v for k, v in changes.items()},
                    "deleted": deleted_keys,
                }
            )
        else:
            shared = "" if entity else "default "
            click.echo(f"Completed updating {shared}config for {_called(kind, entity)}.")

    run(job)


def _run(connect: Connect, work: Callable[[Admin], Awaitable[None]]) -> None:
    async def job() -> None:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            await work(Admin(cluster))

    run(job)


# arguments ------------------------------------------------------------------------------------


def _entity(kind: str, names: Sequence[str | None]) -> str | None:
    """Return the resource name for the requests: "" for the default of all brokers, None if no resource is
    named."""
    if not names:
        return None
    name = names[0]
    if kind == "brokers" and name is not None and not re.fullmatch(r"[0-9]{1,10}", name):
        raise click.UsageError(f"--entity-name {name} is not a broker id, which is a number.")
    return name or ""


def _settings(text: str) -> dict[str, str]:
    """Parse the value of `--add-config`, such as `a=b,c=[d,e]`; a comma within brackets belongs to the
    value."""
    found: dict[str, str] = {}
    for part in _UNBRACKETED_COMMA.split(text):
        key, separator, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not separator or not key:
            raise click.UsageError(f"--add-config {part.strip()}: write NAME=VALUE, or NAME=[VALUE,VALUE].")
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1].strip()
        found[key] = value
    return found


def _properties(path: Path) -> dict[str, str]:
    from konvene.properties import UnreadableProperties, properties_mapping

    try:
        return properties_mapping(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        fail(f"{path} is not UTF-8: {error.reason} at byte {error.start}")
    except UnreadableProperties as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


def _is_there(admin: Admin, kind: str, name: str | None) -> None:
    """Fail if `kind` is brokers and the cluster has no broker with the id `name`: only a broker itself
    returns its settings."""
    nodes = admin.cluster.metadata.nodes
    if kind == "brokers" and name and int(name) not in nodes:
        known = ", ".join(str(node_id) for node_id in sorted(nodes))
        fail(f"there is no broker {name} in the cluster", f"Brokers: {known}.")


async def _names(admin: Admin, kind: str) -> list[str]:
    """Return the names of all resources of a type, as Kafka's tool lists them."""
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


# output ---------------------------------------------------------------------------------------


def _print_entity(kind: str, name: str, entries: Sequence[ConfigEntry], everything: bool) -> None:
    """Print the settings of one resource as `kafka-configs --describe` does. The heading is "All configs"
    with `everything`, else "Dynamic configs"."""
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


def _document(kind: str, name: str, entries: Sequence[ConfigEntry]) -> dict[str, object]:
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
