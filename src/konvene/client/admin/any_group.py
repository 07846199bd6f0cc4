"""Descriptions of a group whose type is not known.

A coordinator answers a request about another type of group as if the group did not exist, and an old broker
has no requests for some types; both are None here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from konvene.client.errors import KafkaError, UnsupportedVersion

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.groups import GroupDescription
    from konvene.client.admin.share_groups import ShareGroupDescription
    from konvene.client.admin.streams_groups import StreamsGroupDescription

    AnyGroup: TypeAlias = GroupDescription | ShareGroupDescription | StreamsGroupDescription

__all__ = ["any_group", "described_or_none", "share_group", "streams_group"]

T = TypeVar("T")


async def any_group(admin: Admin, name: str) -> AnyGroup | None:
    """Return the description of the group of that name; None if there is none of any type."""
    return (
        await streams_group(admin, name)
        or await share_group(admin, name)
        or await described_or_none(admin.describe_group(name))
    )


async def streams_group(admin: Admin, name: str) -> StreamsGroupDescription | None:
    """Return the description of the streams group of that name; None if there is none."""
    return await described_or_none(admin.describe_streams_group(name))


async def share_group(admin: Admin, name: str) -> ShareGroupDescription | None:
    """Return the description of the share group of that name; None if there is none."""
    return await described_or_none(admin.describe_share_group(name))


async def described_or_none(description: Awaitable[T]) -> T | None:
    """Await and return a description; None if there is no such group, or if the cluster does not support
    groups of the type."""
    try:
        return await description
    except UnsupportedVersion:
        return None
    except KafkaError as error:
        if error.name in ("GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"):
            return None
        raise
