"""User data of Kafka Streams in the classic protocol, by Kafka's own code (UserData.java).

`KONVENE_REWRITE=1` makes the vectors of tests/groups/streams anew, which need no Java.
"""

import json
import os
import subprocess
from random import Random
from typing import Any

import pytest
from tests.groups.streams.classic import user_data_rows as rows
from tests.groups.streams.classic.user_data_rows import ENDPOINTS, VALUES, VECTORS, Row, damaged, vectors

from konvene.groups.streams.classic.user_data import (
    UserDataError,
    read_assignment_info,
    read_subscription_info,
    write_assignment_info,
    write_subscription_info,
)

from ..clients import MODEST, java_classpath

pytestmark = pytest.mark.java


def kafka_answers(lines: list[Row]) -> list[Row]:
    """Its answer to each line."""
    process = subprocess.run(
        ["java", *MODEST, "-cp", java_classpath(), "konvene.against.UserData"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def test_the_vectors_are_what_kafka_writes_and_reads() -> None:
    """All of them, made anew."""
    values = [*VALUES, *({"kind": "endpoint", "endpoint": endpoint} for endpoint in ENDPOINTS)]
    made = [{"value": value, **answer} for value, answer in zip(values, kafka_answers(values), strict=True)]
    if os.environ.get("KONVENE_REWRITE"):
        VECTORS.write_text("".join(json.dumps(row) + "\n" for row in made))
    assert vectors() == made


def test_kafka_reads_what_we_write() -> None:
    """As it reads what it has written of the same value itself."""
    wanted = [row for row in vectors() if "hex" in row and not names_topologies(row["value"])]
    written = [{"kind": row["value"]["kind"], "hex": ours(row["value"]).hex()} for row in wanted]
    for row, answer in zip(wanted, kafka_answers(written), strict=True):
        assert answer.get("read") == row["read"], row["value"]


def names_topologies(value: Row) -> bool:
    return any(each[2] for name in ("sums", "active", "standby") for each in value.get(name, ()))


def ours(value: Row) -> bytes:
    if value["kind"] == "subscription":
        return write_subscription_info(rows.subscription(value))
    return write_assignment_info(rows.assignment(value)[0])


def test_of_damaged_bytes_we_read_nothing_that_kafka_does_not() -> None:
    """Whatever is a value here, is the same one there. We refuse more: what is left over, text that is none,
    and tasks of named topologies."""
    dice = Random(1071)
    valid = [row for row in vectors() if "hex" in row]
    lines, read = [], []
    for _ in range(8000):
        row = dice.choice(valid)
        data = damaged(bytes.fromhex(row["hex"]), dice)
        decoded = decode(row["value"], data)
        if decoded is not None:
            lines.append({"kind": row["value"]["kind"], "hex": data.hex()})
            read.append(decoded)
    assert len(lines) > 500
    for line, decoded, answer in zip(lines, read, kafka_answers(lines), strict=True):
        if "sums" in decoded and "read" in answer:
            answer["read"]["sums"] = [each for each in answer["read"]["sums"] if not each[2]]
        assert answer.get("read") == decoded, (line, answer)


def decode(value: Row, data: bytes) -> dict[str, Any] | None:
    try:
        if value["kind"] == "subscription":
            return rows.subscription_row(read_subscription_info(data))
        return rows.assignment_row(read_assignment_info(data, rows.assignment(value)[1]))
    except UserDataError:
        return None
