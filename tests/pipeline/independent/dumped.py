"""Records of `__consumer_offsets` as `kafka-dump-log --offsets-decoder` prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

KEY_NAMES = {
    2: "GROUP_METADATA",
    3: "CONSUMER_GROUP_METADATA",
    5: "CONSUMER_GROUP_MEMBER_METADATA",
    6: "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA",
    7: "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER",
    8: "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    10: "SHARE_GROUP_MEMBER_METADATA",
    11: "SHARE_GROUP_METADATA",
    12: "SHARE_GROUP_TARGET_ASSIGNMENT_METADATA",
    13: "SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER",
    14: "SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    17: "STREAMS_GROUP_METADATA",
    19: "STREAMS_GROUP_MEMBER_METADATA",
    20: "STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA",
    21: "STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER",
    22: "STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    23: "STREAMS_GROUP_TOPOLOGY",
}
"""Kafka's names of record types, by number."""
RECORD = re.compile(r"\| offset: (\d+) \w+: (\d+) .*?headerKeys: \[.*?\] key: (\{.*)$")


def records_of(dump: str) -> Iterator[dict[str, Any]]:
    """Yield the records of groups in the output of the tool; other lines are skipped."""
    base_offset = 0
    for line in dump.splitlines():
        if line.startswith("baseOffset: "):
            base_offset = int(line.split()[1])
        found = RECORD.match(line)
        if found is None:
            continue
        key, end = json.JSONDecoder().raw_decode(found[3])
        name = KEY_NAMES.get(int(key["type"]))
        text = found[3][end:].removeprefix(" payload: ")
        value = json.loads(text)["data"] if text.startswith("{") else None
        if name is not None:
            yield {
                "offset": int(found[1]), "batch_base_offset": base_offset, "timestamp": int(found[2]),
                "key_name": name, "key": key["data"], "value": value,
            }  # fmt: skip
