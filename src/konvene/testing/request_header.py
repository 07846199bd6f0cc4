"""A request on the wire, as fault rules match it: the body is decoded only if a rule needs it.

Bodies are decoded with the broker's message classes. The groups and topics of a request come from the table
of resources that the authorizer checks (`broker.net.authorizer`), which also maps topic ids to names. A body
that cannot be decoded matches no rule that needs the body.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from konvene.broker.net.authorizer import REQUIRED_PERMISSIONS, resources
from konvene.broker.net.frames import FrameHeader, read_frame_header, skip_tags
from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.messages import API_KEYS
from konvene.security.resources import ResourceType
from konvene.testing.group import GroupMember, shard_of
from konvene.testing.rules import Match

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

OWN_CLIENT = "konvene.testing"
"""Client id of the requests that `Konvene` itself sends; faults never apply to them."""

PRODUCE = 0
FIRST_FLEXIBLE_PRODUCE = 9


class ProxiedRequest:
    """A request on the wire, with its decoded header. `frame` includes its length prefix."""

    def __init__(self, broker: Broker, frame: bytes) -> None:
        self.broker = broker
        self.frame = frame
        try:
            self.head = read_frame_header(frame, 4, len(frame))
        except CodecError:
            self.head = FrameHeader(-1, -1, -1, "", len(frame))

    def __repr__(self) -> str:
        return f"<{self.api_name} v{self.version} of client {self.client_id}>"

    @property
    def api_key(self) -> int:
        return self.head.api_key

    @property
    def version(self) -> int:
        return self.head.api_version

    @property
    def client_id(self) -> str:
        return self.head.client_id

    @property
    def is_own(self) -> bool:
        return self.head.client_id == OWN_CLIENT

    @property
    def api_name(self) -> str:
        api = API_KEYS.get(self.api_key)
        return api.name if api is not None else f"API {self.api_key}"

    @cached_property
    def request(self) -> Struct | None:
        """The decoded body; None if the body cannot be decoded."""
        api = API_KEYS.get(self.api_key)
        if api is None:
            return None
        try:
            start = self.head.body
            if self.version >= api.first_flexible:
                start = skip_tags(self.frame, start, len(self.frame))
            return decode_from(api.request, self.version, self.frame, start)[0]
        except CodecError:
            return None

    # --- groups, topics and members of the request ---

    def _named(self, kind: ResourceType) -> tuple[str, ...]:
        if self.request is None:
            return ()
        permissions = [p for p in REQUIRED_PERMISSIONS.get(self.api_key, ()) if p.type is kind]
        return tuple(
            r.name for p in permissions for r in resources(self.broker.catalogue.topics, p, self.request)
        )

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return self._named(ResourceType.GROUP)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return self._named(ResourceType.TOPIC)

    @cached_property
    def identities(self) -> tuple[tuple[str, str | None, int | None], ...]:
        """The (member id, instance id, generation or epoch) of each member that the request names; the last
        two are None if the request does not have them."""
        rows = [self.request, *(getattr(self.request, "members", ()) or ()), *_rows(self.request)]
        return tuple(_identity(row) for row in rows if getattr(row, "member_id", None) is not None)

    def matches(self, match: Match) -> bool:
        """Return True if `match` selects this request, or its response."""
        if self.is_own or (match.api is not None and match.api != self.api_name):
            return False
        if match.client is not None and match.client != self.client_id:
            return False
        if not match.reads_bodies:
            return True
        if match.group is not None and match.group not in self.groups:
            return False
        if match.topic is not None and match.topic not in self.topics:
            return False
        if match.member is None and match.instance is None and match.generation is None:
            return True
        return any(self._is_member(match, *identity) for identity in self.identities)

    def _is_member(self, match: Match, member: str, instance: str | None, generation: int | None) -> bool:
        if match.generation is not None and match.generation != generation:
            return False
        known = [row for group in self.groups for row in self._members(group) if row.member_id == member]
        names = {instance, *(row.instance_id for row in known)}
        if match.instance is not None and match.instance not in names:
            return False
        if isinstance(match.member, int):
            at_position = [self._members(group)[match.member - 1 : match.member] for group in self.groups]
            return match.member > 0 and any(row.member_id == member for rows in at_position for row in rows)
        return match.member is None or match.member in {member, self.client_id, *names}

    def _members(self, group: str) -> list[GroupMember]:
        """Return the members of a group in joining order, as its coordinator has them; none if it does not
        exist.

        Unlike many requests, they have the instance id and client id of a member."""
        shard = shard_of(self.broker, group)
        known = shard.groups.get(group) if shard is not None else None
        return list(known.members.values()) if known is not None else []

    @property
    def has_no_response(self) -> bool:
        """True for a Produce with acks=0, which gets no response."""
        return self.api_key == PRODUCE and _acks(self.frame, self.head, self.version) == 0


def _rows(request: Struct | None) -> tuple[Struct, ...]:
    """Return the structs in the field `groups` of a request, such as an OffsetFetch; none without this field,
    or if it has group names instead of structs."""
    return tuple(row for row in getattr(request, "groups", ()) or () if not isinstance(row, str))


def _identity(row: Any) -> tuple[str, str | None, int | None]:
    instance = getattr(row, "group_instance_id", None) or getattr(row, "instance_id", None)
    for name in ("generation_id", "generation_id_or_member_epoch", "member_epoch"):
        if hasattr(row, name):
            return row.member_id, instance, getattr(row, name)
    return row.member_id, instance, None


def _acks(frame: bytes, head: FrameHeader, version: int) -> int:
    """Return the field `acks` of a Produce, which follows the transactional id; -1 if the frame is
    malformed."""
    at = head.body
    try:
        if version < FIRST_FLEXIBLE_PRODUCE:
            at += 2 + max(0, int.from_bytes(frame[at : at + 2], "big", signed=True))
        else:
            at = skip_tags(frame, at, len(frame))
            length = shift = 0
            while frame[at] & 0x80:
                length |= (frame[at] & 0x7F) << shift
                at, shift = at + 1, shift + 7
            length |= frame[at] << shift
            at += 1 + max(0, length - 1)
    except (IndexError, CodecError):
        return -1
    return int.from_bytes(frame[at : at + 2], "big", signed=True)
