"""The entities of `konvene configs`: types and names, in the options of Kafka's tool.

`--entity-type` and `--entity-name` (or `--entity-default`) come in pairs, and each pair has a short form,
such as `--user alice` or `--user-defaults`. Users and clients can be combined: the clients of one user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from konvene.cli.name_completion import complete_entities, entity_completer
from konvene.cli.positional import explicit

__all__ = [
    "CLIENT_TYPES", "RESOURCE_TYPES", "WITH_DEFAULTS", "Entities", "EntityCommand", "entity_options",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])

RESOURCE_TYPES = ("topics", "brokers", "groups")
"""Types of entities whose settings are DescribeConfigs' and IncrementalAlterConfigs'."""
CLIENT_TYPES = ("users", "clients", "ips")
"""Types of entities with client quotas; users also have SCRAM credentials."""
WITH_DEFAULTS = ("brokers", *CLIENT_TYPES)

_ORDER = "konvene.entity-order"


class Entities(NamedTuple):
    """Types in order, and the names of the first ones; the name None stands for the default."""

    types: tuple[str, ...]
    names: tuple[str | None, ...]

    @property
    def type(self) -> str:
        return self.types[0]


class EntityCommand(click.Command):
    """A command whose options --entity-name and --entity-default are kept in their order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = (arg.partition("=")[0] for arg in args)
        ctx.meta[_ORDER] = [name for name in names if name in ("--entity-name", "--entity-default")]
        return super().parse_args(ctx, args)


def entity_options(command: F) -> F:
    """Add the options that name entities to an `EntityCommand`, passed as the parameter `entities`."""

    @functools.wraps(command)
    def wrapped(
        *args: object, types: tuple[str, ...], names: tuple[str, ...], default: int, **options: Any
    ) -> object:
        short = {kind: options.pop(_parameter(kind)) for kind in (*RESOURCE_TYPES, *CLIENT_TYPES)}
        defaults = [kind for kind in WITH_DEFAULTS if options.pop(f"{_parameter(kind)}_defaults")]
        named = [(kind, name) for kind, name in short.items() if explicit(_parameter(kind))]
        if (types or names or default) and (named or defaults):
            raise click.UsageError(
                "--entity-{type,name,default} should not be used in conjunction with specific entity flags."
            )
        if types or names or default:
            entities = Entities(types, tuple(_ordered(names, default)))
        else:
            found: list[tuple[str, str | None]] = [*named, *((kind, None) for kind in defaults)]
            entities = Entities(tuple(kind for kind, _ in found), tuple(name for _, name in found))
        _check(entities)
        return command(*args, entities=entities, **options)

    decorated: Any = wrapped
    for kind in reversed(WITH_DEFAULTS):
        decorated = click.option(
            f"--{kind[:-1]}-defaults", f"{_parameter(kind)}_defaults", is_flag=True,
            help=f"Short for --entity-type {kind} --entity-default.",
        )(decorated)  # fmt: skip
    for kind in reversed((*RESOURCE_TYPES, *CLIENT_TYPES)):
        decorated = click.option(
            f"--{kind[:-1]}", _parameter(kind), metavar="NAME", shell_complete=entity_completer(kind),
            help=f"Short for --entity-type {kind} --entity-name NAME.",
        )(decorated)  # fmt: skip
    for option in (
        click.option(
            "--entity-default", "default", count=True,
            help="The default for all brokers, users, clients or IP addresses.",
        ),
        click.option(
            "--entity-name", "names", multiple=True, metavar="NAME", shell_complete=complete_entities,
            help="Topic, broker id, group, user, client id or IP address [default: all].",
        ),
        click.option(
            "--entity-type", "types", multiple=True, type=click.Choice([*RESOURCE_TYPES, *CLIENT_TYPES]),
            help="Type of the entity; users and clients may be given together, for the clients of a user.",
        ),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _parameter(kind: str) -> str:
    return f"short_{kind[:-1]}"


def _ordered(names: Sequence[str], default: int) -> list[str | None]:
    """Return the names in the order of the command line, None for --entity-default."""
    order = click.get_current_context().meta.get(_ORDER, ())
    if len(order) != len(names) + default:  # They are defaults of a configuration file.
        return [*names, *[None] * default]
    remaining = iter(names)
    return [next(remaining) if option == "--entity-name" else None for option in order]


def _check(entities: Entities) -> None:
    """Raise UsageError for combinations that Kafka's tool rejects."""
    types, names = entities
    if not types:
        raise click.UsageError("Give --entity-type.")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise click.UsageError("Only 'users' and 'clients' entity types may be specified together.")
    if len(set(types)) < len(types):
        raise click.UsageError("Duplicate entity type(s) specified.")
    if len(names) > len(types):
        raise click.UsageError(
            "--entity-name and --entity-default cannot be used together."
            if len(types) == 1
            else "More entity names specified than entity types."
        )
    if "" in names:
        raise click.UsageError("--entity-name is empty.")
    if None in names and types[0] not in WITH_DEFAULTS:
        raise click.UsageError(f"--entity-default is only supported for {', '.join(WITH_DEFAULTS)}.")
