"""Whether Kafka and we said the same, and where Kafka contradicts itself.

Kafka keeps what lies before a start that was moved by the log until its locks end, and forgets writes under
way where it cuts a batch. What comes of that can be seen in its own answers: it gives out offsets before its
start, wants to read there, or counts other records than it has. A story ends where Kafka does that.
"""

from __future__ import annotations

from collections.abc import Iterable

Heard = tuple[str, str, str, str]
"""What was said, what was written, where the window is, and each offset in it."""

DONE = "24"
ARCHIVED = "4"


def contradiction(line: str, before: Heard | None, kafka: Heard, holes: Iterable[tuple[int, int]]) -> str:
    """What is wrong in Kafka's answer, whatever ours is; nothing where it is sound.

    `holes`: where was read so far, and the first offset that the log had there."""
    said, _, place, window = kafka
    next_offset, start, _, complete, _ = place.split()
    states = _states(window, int(start))
    if line.startswith("take") and any(int(part.partition("-")[0]) < int(start) for part in said.split()):
        return "offsets before the start were given out"
    if int(next_offset) < int(start):
        return "an offset before the start is to be read"
    if sum(state[0] in DONE for state in states.values()) != int(complete):
        return "complete records are not counted right"
    if before is not None and line.startswith("begins"):
        was = _states(before[3])
        if any(was[offset].endswith("?") and not state.endswith("?") for offset, state in states.items()):
            return "a write under way was forgotten"
    emptied = before is not None and before[3] and not _states(before[3], int(before[2].split()[1]))
    if line.startswith("take") and emptied:
        return "a window of which nothing is left counts as one record"
    if any(asked <= int(next_offset) < first for asked, first in holes):
        return "a gap that the log does not have is read again"
    return ""


def difference(ours: Heard, kafka: Heard) -> str:
    """What is not the same. Our start may be ahead over what is done: Kafka moves it after successes only."""
    if _kind(ours[0]) != _kind(kafka[0]):
        return "said"
    next_offset, start, end, complete, can_acquire = ours[2].split()
    other_next, other_start, other_end, other_complete, other_can = kafka[2].split()
    mine, theirs = _states(ours[3]), _states(kafka[3], int(other_start))
    behind = {offset: theirs.pop(offset) for offset in tuple(theirs) if offset < int(start)}
    if any(state[0] not in DONE or state[0] + state[-1] == "2?" for state in behind.values()):
        return "start"
    if int(start) < int(other_start) or int(complete) + len(behind) != int(other_complete):
        return "complete"
    for offset, state in mine.items():
        if state[0] == ARCHIVED and theirs.get(offset) == state + "?":
            theirs[offset] = (
                state  # The log does not have it any more: what is being written does not matter.
            )
    if mine != theirs:
        return "states"
    if mine and (next_offset, end) != (other_next, other_end):
        return "place"
    if mine and start == other_start and can_acquire != other_can:
        return "can acquire"
    if _from(ours[1], int(start)) != _from(kafka[1], int(start)):
        return "written"
    return ""


def lags(ours: Heard, kafka: Heard) -> bool:
    """Whether Kafka's window holds more that is done than ours: then it may have less room."""
    return ours[2].split()[1] != kafka[2].split()[1]


def _states(window: str, start: int = 0) -> dict[int, str]:
    each = (word.partition(":") for word in window.split())
    return {int(offset): state for offset, _, state in each if int(offset) >= start}


def _kind(said: str) -> str:
    """An error without its message."""
    return said.partition(":")[0] if said[:1].isupper() else said


def _from(written: str, start: int) -> list[str]:
    """What was written, of offsets that are not over."""
    return [row for row in written.split()[1:] if int(row.partition(":")[0]) >= start]
