"""What happened, a line each: records, stories, answers. For scenarios, traces and people."""

from __future__ import annotations

from typing import Any

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.records.commits import OffsetCommitted
from konvene.shard.contract import Rebalance


def record_line(record: Any) -> str:
    """A record of a group coordinator."""
    if isinstance(record, OffsetCommitted):
        told = "deleted" if record.committed is None else f"offset {record.committed.offset}"
        return f"offset {record.group} {record.topic}-{record.partition} {told}"
    key, value = record.key, record.value
    if value is None:
        return f"group {key.group} deleted"
    members = ", ".join(
        m.member_id + (f"={_text(m.assignment)}" if m.assignment else "") for m in value.members
    )
    return f"group {key.group} generation {value.generation} [{members}]"


def why_line(rebalance: Rebalance) -> str:
    """Why there was a generation."""
    story = rebalance.story
    told = ", ".join(
        " ".join(word for word in (c.kind, c.member_id, c.reason and f"({c.reason})") if word)
        for c in story.causes
    )
    return f"why generation {story.epoch} {story.state}: {told}"


def answer_line(answer: Struct | Errors) -> str:
    """A response: what is not at its default."""
    if isinstance(answer, Errors):
        return answer.name
    parts: list[str] = []
    for f in answer.__fields__:
        value = getattr(answer, f.name)
        if f.name == "error_code":
            parts.insert(0, Errors(value).name)
        elif value and value != ZERO_UUID and f.name != "throttle_time_ms":
            parts.append(f"{f.name}={_value(value)}")
    return " ".join([type(answer).__name__.removesuffix("Response"), *parts])


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Struct):
        return "{" + answer_line(value).partition(" ")[2] + "}"
    return str(value)


def _text(data: bytes) -> str:
    """Bytes as text where they are text; no line ends in them."""
    return data.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()
