"""Comparison of the answers of konvene and Kafka, and detection of inconsistent answers of Kafka.

After the log start moved, Kafka keeps the records below it until their locks expire, and loses pending writes
when it splits a batch. Its own answers show that: it delivers offsets below its start, fetches there, or
counts other records than it has. A script ends at such an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

Answer = tuple[str, str, str, str]
"""Result of a command, the write, the position of the window, and each offset in it."""

DONE = "24"
ARCHIVED = "4"


def contradiction(
    line: str, before: Answer | None, kafka: Answer, log_gaps: Iterable[tuple[int, int]]
) -> str:
    """Return how Kafka's answer contradicts itself, or an empty string.

    `log_gaps` has the fetch offset of each read and the first offset found in the log."""
    result, _, position, window = kafka
    next_offset, start, _, complete, _ = position.split()
    states = _states(window, int(start))
    if line.startswith("take") and any(int(part.partition("-")[0]) < int(start) for part in result.split()):
        return "offsets below the start were delivered"
    if int(next_offset) < int(start):
        return "the next fetch offset is below the start"
    if sum(state[0] in DONE for state in states.values()) != int(complete):
        return "the complete count is wrong"
    if before is not None and line.startswith("begins"):
        states_before = _states(before[3])
        pending = {offset for offset, state in states_before.items() if state.endswith("?")}
        if any(offset in pending and not state.endswith("?") for offset, state in states.items()):
            return "a pending write was lost"
    emptied = before is not None and before[3] and not _states(before[3], int(before[2].split()[1]))
    if line.startswith("take") and emptied:
        return "an empty window counts as one record"
    if any(fetch_offset <= int(next_offset) < first for fetch_offset, first in log_gaps):
        return "a gap without records in the log is read again"
    return ""


def difference(konvene: Answer, kafka: Answer) -> str:
    """Return the aspect that differs, or an empty string.

    Konvene's start may be ahead over completed records: Kafka moves it only after successful writes."""
    if _error_name(konvene[0]) != _error_name(kafka[0]):
        return "result"
    next_offset, start, end, complete, can_acquire = konvene[2].split()
    other_next, other_start, other_end, other_complete, other_can = kafka[2].split()
    konvene_states, kafka_states = _states(konvene[3]), _states(kafka[3], int(other_start))
    below_start = {offset: kafka_states.pop(offset) for offset in tuple(kafka_states) if offset < int(start)}
    if any(state[0] not in DONE or state[0] + state[-1] == "2?" for state in below_start.values()):
        return "start"
    if int(start) < int(other_start) or int(complete) + len(below_start) != int(other_complete):
        return "complete"
    for offset, state in konvene_states.items():
        if state[0] == ARCHIVED and kafka_states.get(offset) == state + "?":
            kafka_states[offset] = (
                state  # The log has no such record any more, so the pending write is irrelevant.
            )
    if konvene_states != kafka_states:
        return "states"
    if konvene_states and (next_offset, end) != (other_next, other_end):
        return "position"
    if konvene_states and start == other_start and can_acquire != other_can:
        return "can acquire"
    if _written_from(konvene[1], int(start)) != _written_from(kafka[1], int(start)):
        return "written"
    return ""


def start_differs(konvene: Answer, kafka: Answer) -> bool:
    """Return True if the start offsets differ: Kafka's window may then be full earlier."""
    return konvene[2].split()[1] != kafka[2].split()[1]


def _states(window: str, start: int = 0) -> dict[int, str]:
    entries = (word.partition(":") for word in window.split())
    return {int(offset): state for offset, _, state in entries if int(offset) >= start}


def _error_name(result: str) -> str:
    """Return the name of an error without its message, or the result itself."""
    return result.partition(":")[0] if result[:1].isupper() else result


def _written_from(written: str, start: int) -> list[str]:
    """Return the written entries at or above the start offset."""
    return [row for row in written.split()[1:] if int(row.partition(":")[0]) >= start]
