"""Selection of groups on the command line: by name, or all groups of a type as Kafka's tools define it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import click

from konvene.cli.name_completion import complete_groups
from konvene.cli.options import fail
from konvene.cli.positional import explicit, one_name, several_names

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.groups import GroupListing

F = TypeVar("F", bound=Callable[..., object])


class GroupSelection(NamedTuple):
    """The groups that the command line selects: those in `names`, or all groups of the selected type if there
    are none."""

    names: tuple[str, ...]
    streams: bool = False
    """Whether only streams groups are selected."""
    share: bool = False
    """Whether only share groups are selected."""

    async def resolve(self, admin: Admin) -> list[str]:
        """Return the names in the order of the command line, or those of all groups, sorted."""
        if self.names:
            return list(self.names)
        if self.streams or self.share:
            wanted = "share" if self.share else "streams"
            return [g.group_id for g in await admin.list_groups(types=[wanted])]
        return [g.group_id for g in await admin.list_groups() if is_consumer_group(g)]


def is_consumer_group(group: GroupListing) -> bool:
    """Return True if `--all-groups` includes the group: a group of consumers, or one that has only offsets
    and no members.

    Other groups, such as those of Kafka Connect, have to be named."""
    return group.type in ("", "classic", "consumer") and group.protocol_type in ("", "consumer")


async def refuse_other_types(admin: Admin, name: str) -> None:
    """Fail with a message about the group's type if it is a share or streams group: coordinators answer
    consumer group requests for these as if the group did not exist."""
    for group in await admin.list_groups():
        if group.group_id == name and group.type in ("share", "streams"):
            fail(
                f"group {name} is a {group.type} group; this command needs a classic or consumer group",
                "`konvene groups list` shows the type of each group.",
            )


async def no_such_group(admin: Admin, name: str) -> NoReturn:
    """Fail because no classic or consumer group of that name exists."""
    await refuse_other_types(admin, name)
    no_group(name, "classic or consumer")


def no_group(name: str, kinds: str = "") -> NoReturn:
    """Fail because no group of that name exists; `kinds` are the group types that were searched, if not
    all."""
    kind = f"{kinds} " if kinds else ""
    fail(f"there is no {kind}group {name}", "`konvene groups list` shows the existing groups.")


def several_groups(verb: str) -> Callable[[F], F]:
    """Return a decorator that adds GROUP..., --group, --all-groups, --streams and --share to a command,
    passed as the parameter `groups`, a `GroupSelection`. `verb` begins the help of --all-groups."""

    def decorate(command: F) -> F:
        @several_names("group", complete_groups)
        @click.option("--all-groups", is_flag=True, help=f"{verb} all classic and consumer groups.")
        @click.option("--streams", is_flag=True, help="With --all-groups: all streams groups.")
        @click.option("--share", is_flag=True, help="Only share groups; with --all-groups: all share groups.")
        @functools.wraps(command)
        def wrapped(
            *args: object, names: tuple[str, ...], all_groups: bool, streams: bool, share: bool,
            **kwargs: object,
        ) -> object:  # fmt: skip
            if streams and share:
                raise click.UsageError("--streams and --share cannot be used together.")
            if all_groups and not explicit("words") and not explicit("options"):
                names = ()  # Those of a profile.
            if bool(names) == all_groups:
                raise click.UsageError("Give GROUP... (or --group GROUP) or --all-groups.")
            return command(*args, groups=GroupSelection(names, streams, share), **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


one_group = one_name("group", complete_groups)
"""Adds GROUP and --group to a command, passed as the parameter `group`."""
