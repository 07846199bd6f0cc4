"""Which groups a command is about: those that are named, or all that Kafka's tool would take for all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from konvene.cli.options import fail

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.groups import GroupListing

F = TypeVar("F", bound=Callable[..., Any])


class Named(NamedTuple):
    """The groups that the command line names; none means all."""

    names: tuple[str, ...]
    streams: bool = False
    """Whether streams groups are meant, and no others."""
    share: bool = False
    """Whether share groups are meant, and no others."""

    async def of(self, admin: Admin) -> list[str]:
        """Their names, in the order in which they were given, or by name where all are meant."""
        if self.names:
            return list(self.names)
        if self.streams or self.share:
            wanted = "share" if self.share else "streams"
            return [g.group_id for g in await admin.list_groups(types=[wanted])]
        return [g.group_id for g in await admin.list_groups() if is_consumer_group(g)]


def is_consumer_group(group: GroupListing) -> bool:
    """Whether it counts where all groups are meant: groups of consumers, and offsets without members.

    Others, such as Kafka Connect's, are left alone unless they are named."""
    return group.type in ("", "classic", "consumer") and group.protocol_type in ("", "consumer")


async def refuse_other_types(admin: Admin, name: str) -> None:
    """A coordinator says of a share or streams group that it is not found; people want to know better."""
    for group in await admin.list_groups():
        if group.group_id == name and group.type in ("share", "streams"):
            fail(
                f"group {name} is a {group.type} group, and this is for classic and consumer groups",
                "`konvene groups list` shows the type of each group.",
            )


async def no_such_group(admin: Admin, name: str) -> NoReturn:
    """No classic or consumer group was found: say what there is instead."""
    await refuse_other_types(admin, name)
    no_group(name, "classic or consumer")


def no_group(name: str, kinds: str = "") -> NoReturn:
    """There is none of that name, or none of that kind."""
    kind = f"{kinds} " if kinds else ""
    fail(f"there is no {kind}group {name}", "`konvene groups list` shows the groups there are.")


def several_groups(verb: str) -> Callable[[F], F]:
    """GROUP... or --group (repeatable), or --all-groups: the parameter `groups`, a `Named`.

    With --streams or --share no others are meant."""

    def decorate(command: F) -> F:
        @click.argument("words", nargs=-1, metavar="[GROUP]...")
        @click.option("--group", "options", multiple=True, metavar="GROUP", help="The same; repeatable.")
        @click.option("--all-groups", is_flag=True, help=f"{verb} all classic and consumer groups.")
        @click.option("--streams", is_flag=True, help="With --all-groups: all streams groups instead.")
        @click.option(
            "--share", is_flag=True, help="Share groups only: with --all-groups all of them instead."
        )
        @functools.wraps(command)
        def wrapped(
            *args: Any, words: tuple[str, ...], options: tuple[str, ...], all_groups: bool, streams: bool,
            share: bool, **kwargs: Any,
        ) -> Any:  # fmt: skip
            if streams and share:
                raise click.UsageError("--streams and --share contradict each other: give one of them.")
            names = tuple(dict.fromkeys((*words, *options)))
            if bool(names) == all_groups:
                raise click.UsageError("Give GROUP... (or --group GROUP) or --all-groups.")
            return command(*args, groups=Named(names, streams, share), **kwargs)

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
