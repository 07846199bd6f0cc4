"""Copies of logs with damage: Apache Kafka's own, and small ones in several segments."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.pipeline.codec.logs import LOGS

from konvene.codec.batches import read_header
from konvene.pipeline.answers import Gold
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse.warehouse import Warehouse

Batch = tuple[int, int, int]
"""Position, first and last offset of a batch."""


def batches_of(data: bytes | bytearray) -> list[Batch]:
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        found.append((at, header.base_offset, header.last_offset))
        at += header.size
    return found


def kafkas_log(folder: Path, story: str) -> Path:
    """Copy the logs of a scenario, and return the largest segment of its group coordinator."""
    shutil.copytree(LOGS / story, folder, dirs_exist_ok=True)
    return max(folder.glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)


def changed(path: Path, change: Callable[[bytearray, list[Batch]], object]) -> list[Batch]:
    """Change the bytes of a segment, and return the batches that it had."""
    data = bytearray(path.read_bytes())
    batches = batches_of(data)
    change(data, batches)
    path.write_bytes(data)
    return batches


def flip(*places: tuple[int, int]) -> Callable[[bytearray, list[Batch]], object]:
    """Return a change that flips a bit of each byte, given by number of batch and position in it."""

    def change(data: bytearray, batches: list[Batch]) -> None:
        for number, at in places:
            data[batches[number][0] + at] ^= 1

    return change


def in_segments(path: Path, at: Iterable[int]) -> list[Path]:
    """Split a segment before the batches with these numbers; return the files in order."""
    data = path.read_bytes()
    batches = batches_of(data)
    edges = [0, *at, len(batches)]
    ends = [position for position, *_ in batches] + [len(data)]
    paths = []
    for begin, end in itertools.pairwise(edges):
        paths.append(path.with_name(f"{batches[begin][1]:020}.log"))
        paths[-1].write_bytes(data[ends[begin] : ends[end]])
    return paths


def explained(home: Path, *logs: Path) -> Gold:
    """Read the logs into a warehouse and return its gold tables."""
    warehouse = Warehouse(home)
    ingest(warehouse, list(logs), Local())
    build(warehouse, Local())
    return Gold(warehouse=warehouse)
