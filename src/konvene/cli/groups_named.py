"""Which groups a command is about: those that are named, or all that Kafka's tool would take for all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from konvene.cli.options import fail

if TYPE_CHECKING:
    from konvene.client.admin import Admin
    from konvene.client.groups import GroupListing

F = TypeVar("F", bound=Callable[..., Any])


class Named(NamedTuple):
    """The groups that the command line names; none means all."""

    names: tuple[str, ...]
    streams: bool = False
    """Whether streams groups are meant, and no others."""

    async def of(self, admin: Admin) -> list[str]:
        """Their names, in the order in which they were given, or by name where all are meant."""
        if self.names:
            return list(self.names)
        if self.streams:
            return [g.group_id for g in await admin.list_groups(types=["streams"])]
        return [g.group_id for g in await admin.list_groups() if is_consumer_group(g)]


def is_consumer_group(group: GroupListing) -> bool:
    """Whether it counts where all groups are meant: groups of consumers, and offsets without members.

    Others, such as Kafka Connect's, are left alone unless they are named."""
    return group.type in ("", "classic", "consumer") and group.protocol_type in ("", "consumer")


async def refuse_other_types(admin: Admin, name: str, *, streams: bool = False) -> None:
    """A coordinator says of a share or streams group that it is not found; people want to know better.

    `streams`: they are welcome as well."""
    refused = ("share",) if streams else ("share", "streams")
    welcome = "classic, consumer and streams groups" if streams else "classic and consumer groups"
    for group in await admin.list_groups():
        if group.group_id == name and group.type in refused:
            fail(
                f"group {name} is a {group.type} group, and this is for {welcome}",
                "`konvene groups list` shows the type of each group.",
            )


async def no_such_group(admin: Admin, name: str, *, streams: bool = False) -> NoReturn:
    """Nothing was found: say what there is instead."""
    await refuse_other_types(admin, name, streams=streams)
    kinds = "classic, consumer or streams" if streams else "classic or consumer"
    fail(f"there is no {kinds} group {name}", "`konvene groups list` shows the groups there are.")


def several_groups(verb: str) -> Callable[[F], F]:
    """GROUP... or --group (repeatable), or --all-groups [--streams]: the parameter `groups`, a `Named`."""

    def decorate(command: F) -> F:
        @click.argument("words", nargs=-1, metavar="[GROUP]...")
        @click.option("--group", "options", multiple=True, metavar="GROUP", help="The same; repeatable.")
        @click.option("--all-groups", is_flag=True, help=f"{verb} all classic and consumer groups.")
        @click.option("--streams", is_flag=True, help="With --all-groups: all streams groups instead.")
        @functools.wraps(command)
        def wrapped(
            *args: Any, words: tuple[str, ...], options: tuple[str, ...], all_groups: bool, streams: bool,
            **kwargs: Any,
        ) -> Any:  # fmt: skip
            names = tuple(dict.fromkeys((*words, *options)))
            if bool(names) == all_groups:
                raise click.UsageError("Give GROUP... (or --group GROUP) or --all-groups.")
            return command(*args, groups=Named(names, streams), **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


def one_group(command: F) -> F:
    """GROUP or --group: the parameter `group`."""

    @click.argument("word", required=False, metavar="GROUP")
    @click.option("--group", "option", metavar="GROUP", help="The same.")
    @functools.wraps(command)
    def wrapped(*args: Any, word: str | None, option: str | None, **kwargs: Any) -> Any:
        names = {each for each in (word, option) if each is not None}
        if len(names) != 1:
            raise click.UsageError("Give one GROUP (or --group GROUP).")
        return command(*args, group=names.pop(), **kwargs)

    return wrapped  # type: ignore[return-value]
