"""Completion of names of groups, topics and other resources, from the cluster that the command line names.

A shell calls these functions for each completion, with the options before the cursor. They wait for the
cluster for a short time only, and offer no names if it cannot be reached.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin

__all__ = [
    "complete_entities",
    "complete_groups",
    "complete_profiles",
    "complete_share_groups",
    "complete_topics",
    "complete_transactional_ids",
    "entity_completer",
]

TIMEOUT_MS = 1_500
"""Time for all requests of a completion."""

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the profiles in the configuration file."""
    from konvene.cli.profiles import BadConfig, config_path, read_config

    with contextlib.suppress(BadConfig):
        return _beginning_with(incomplete, read_config(config_path())[1])
    return []


def _completer(names: Callable[[Admin, click.Context], Awaitable[Iterable[str]]]) -> Completer:
    """Return a completer of the names that a request returns. In a comma-separated list it completes the last
    one."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        used = set(before.split(","))
        found = _beginning_with(last, _request(names, context))
        return [f"{before}{comma}{name}" for name in found if name not in used]

    return complete


def _beginning_with(beginning: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(beginning))


def _request(
    names: Callable[[Admin, click.Context], Awaitable[Iterable[str]]], context: click.Context
) -> Sequence[str]:
    """Return the names that the cluster of the command line has; none if anything fails."""
    import asyncio

    from konvene.cli.options import explicit_server, open_cluster
    from konvene.client.admin.admin import Admin

    async def request() -> list[str]:
        server = explicit_server(context, context.params.get("bootstrap_server"))
        config = context.params.get("command_config")
        async with (
            asyncio.timeout(TIMEOUT_MS / 1000),
            open_cluster(server, Path(config) if config else None, TIMEOUT_MS) as cluster,
        ):
            return list(await names(Admin(cluster), context))

    with contextlib.suppress(Exception):  # A shell has no place for an error message.
        return asyncio.run(request())
    return []


async def _groups(admin: Admin, context: click.Context) -> Iterable[str]:
    return [group.group_id for group in await admin.list_groups()]


async def _share_groups(admin: Admin, context: click.Context) -> Iterable[str]:
    return [group.group_id for group in await admin.list_groups(types=["share"])]


async def _topics(admin: Admin, context: click.Context) -> Iterable[str]:
    return [topic.name for topic in await admin.list_topics()]


async def _transactional_ids(admin: Admin, context: click.Context) -> Iterable[str]:
    return [each.transactional_id for each in await admin.list_transactions()]


async def _entities(admin: Admin, context: click.Context) -> Iterable[str]:
    """Return the names of the entities of the last `--entity-type`."""
    return await _of_type((context.params.get("types") or ("topics",))[-1], admin, context)


async def _of_type(kind: str, admin: Admin, context: click.Context) -> Iterable[str]:
    if kind == "brokers":
        await admin.cluster.refresh([])
        return [str(node) for node in admin.cluster.metadata.nodes]
    if kind == "users":
        return await admin.describe_user_scram_credentials()
    if kind in ("clients", "ips"):
        entity_type = "client-id" if kind == "clients" else "ip"
        quotas = await admin.describe_client_quotas()
        return {name for each in quotas if (name := each.entity.get(entity_type)) is not None}
    return await (_groups if kind == "groups" else _topics)(admin, context)


def entity_completer(kind: str) -> Completer:
    """Return a completer of the names of one type of entities of `konvene configs`."""
    return _completer(partial(_of_type, kind))


complete_groups = _completer(_groups)
complete_share_groups = _completer(_share_groups)
complete_topics = _completer(_topics)
complete_transactional_ids = _completer(_transactional_ids)
complete_entities = _completer(_entities)
