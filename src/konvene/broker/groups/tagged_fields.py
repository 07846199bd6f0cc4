"""Adds tagged fields to the groups of describe responses, for clients that request them with the same tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from konvene.codec.compile import encode
from konvene.codec.schema import Struct
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
    from konvene.messages.describe_groups import DescribedGroup as ClassicGroup
    from konvene.messages.share_group_describe import DescribedGroup as ShareGroup
    from konvene.messages.streams_group_describe import DescribedGroup as StreamsGroup

Described = TypeVar("Described", "ClassicGroup", "ConsumerGroup", "ShareGroup", "StreamsGroup")


def add_tagged_field(
    tag: int, request: Struct, described: list[Described], field_of: Callable[[str], Struct]
) -> list[Described]:
    """Add `field_of(group_id)` to each group that was described without error, if the request has the tag.

    Fields that a group has already are kept: several extensions are added in ascending order of their tags.
    """
    if all(requested != tag for requested, _ in request.unknown_tags):
        return described
    return [
        _with_tag(group, tag, field_of) if group.error_code == Errors.NONE else group for group in described
    ]


def _with_tag(group: Described, tag: int, field_of: Callable[[str], Struct]) -> Described:
    return group.replace(unknown_tags=(*group.unknown_tags, (tag, encode(field_of(group.group_id), 0))))
