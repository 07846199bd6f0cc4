"""The traces of rebalances in the report page: as many as fit.

A trace is what `konvene explain --why` prints: steps, members with what they waited for, and what the log
does not record. It takes about 1 KB. `add_traces` takes rebalances in turns, the newest of each group first,
then the second newest of each, until the given number of bytes is used; the page names the command for the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from konvene.pipeline.answers.page import as_json
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.trace import GroupTraces, RebalanceTrace

__all__ = ["DrawnGroup", "add_traces", "rebalance_key"]


class DrawnGroup(NamedTuple):
    """A group of the page that has details."""

    detail: dict[str, Any]
    """Its part of the page's data; `add_traces` adds `traces`."""
    rebalances: Sequence[Rebalance]
    """The listed ones, newest first."""
    traces: GroupTraces


def rebalance_key(r: Rebalance) -> str:
    """Return a key that is unique within the group and the same in each report of its logs."""
    return f"{r.to_epoch}-{r.log_partition}-{r.base_offset}"


def add_traces(groups: Sequence[DrawnGroup], max_bytes: int) -> None:
    """Add the traces of rebalances to the groups' details, by key, at most so many bytes of JSON."""
    bytes_left = max_bytes
    for group in groups:
        group.detail["traces"] = {}
    for group, rebalance in _in_turns(groups):
        document = _document(group.traces.trace(rebalance))
        key = rebalance_key(rebalance)
        bytes_left -= len(as_json({key: document}).encode())
        if bytes_left < 0:
            break
        group.detail["traces"][key] = document


def _in_turns(groups: Iterable[DrawnGroup]) -> Iterator[tuple[DrawnGroup, Rebalance]]:
    columns = ([(group, each) for each in group.rebalances] for group in groups)
    for turn in zip_longest(*columns):
        yield from (each for each in turn if each is not None)


def _document(trace: RebalanceTrace) -> dict[str, object]:
    """Return a trace as `trace.js` reads it."""
    r = trace.rebalance
    first_ms = trace.steps[0].ms if trace.steps else 0
    began_ms = r.start_ms if r.start_ms is not None else first_ms
    return {
        "converged": r.converged,
        "steps": [{"after_ms": step.ms - began_ms, "text": step.text} for step in trace.steps],
        "members": [
            {
                "name": each.name, "part": each.part, "before": each.before, "after": each.after,
                "revoked": each.revoked, "added": each.added, "acknowledged_ms": each.acknowledged_ms,
                "states": each.states, "waited_for": each.waited_for,
            }
            for each in trace.followers
        ],
        "left_out": trace.left_out,
        "unknown": trace.unknown,
    }  # fmt: skip
