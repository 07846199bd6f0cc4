"""What a start does about a cleaning that was interrupted: goes back, or goes on, never half of either.

As Kafka's `LogLoader`, on whose files it works as well as on ours. A new segment is `.cleaned` while it is
written: then the log is still the old one, and the draft goes. It becomes `.swap`, its `.log` first, while
the other files are still `.cleaned`: from a `.cleaned` file on, the `.swap` files of the same base offset or
a later one were not all there, and go too. Where none is left, the `.swap` files are whole and durable: the
segments that they were made of are deleted, and they get their real names.

Kafka tells from the `.swap` file alone which segments it was made of: all from its base offset up to its
last batch. Where nothing was kept of the last of them, that would leave it standing. So `swapping` puts an
empty `.swap` in its place; Kafka makes it an empty segment, and here it goes once it has done its work.

Each step may be the last one before a crash: a `.swap` `.log` stays until nothing is left that it has to
say, and what was done is done again without harm.
"""

from __future__ import annotations

from konvene.log.cleaner.contract import CLEANED, SWAP
from konvene.log.disk.files import Disk
from konvene.log.errors import DamagedLog
from konvene.log.recovery import scan

__all__ = ["INDEXES", "complete", "end_of", "is_interrupted", "remove_drafts"]

INDEXES = (".index", ".timeindex", ".txnindex")


def is_interrupted(names: list[str]) -> bool:
    """Whether a folder holds the files of a cleaning that has not ended."""
    return bool(_of(names, CLEANED) or _of(names, SWAP))


def complete(disk: Disk, directory: str, names: list[str]) -> int | None:
    """Go back or go on; the offset up to which a cleaning may have left gaps, None where none was completed.

    `names` is what the folder holds. `DamagedLog` where a new segment is not whole; OSError."""
    swaps = _valid(disk, directory, names)
    bases = sorted(_base(name) for name in swaps if name.endswith(".log" + SWAP))
    upto = _make_room(disk, directory, bases) if bases else None
    for name in sorted(swaps, key=_order):
        path = f"{directory}/{name}"
        if disk.exists(path):
            disk.rename(path, path.removesuffix(SWAP))
    if swaps:
        disk.sync_directory(directory)
    return upto


def _make_room(disk: Disk, directory: str, bases: list[int]) -> int:
    """Delete the segments in whose place others are to come; where the first one begins that stays."""
    ends = {base: end_of(disk, f"{directory}/{base:020d}.log{SWAP}", base) for base in bases}
    upto = max(ends.values())
    present = set(disk.listdir(directory))
    others = sorted({_base(name) for name in _of(list(present), ".log")}.difference(bases))
    for base in others:
        if bases[0] <= base < upto:
            _remove(disk, directory, base, "", present)
    for base in reversed(bases):
        _remove(disk, directory, base, "", present, but_log=True)
        if base != bases[0] and ends[base] == base:  # It is empty: only its name had something to say.
            _remove(disk, directory, base, "", present)
            _remove(disk, directory, base, SWAP, present)
    return next((base for base in others if base >= upto), upto)


def remove_drafts(disk: Disk, directory: str) -> None:
    """Remove what a cleaning has left and will not be gone on with; the folder may be gone as well.

    From the first step on a start would go back as well: a draft makes drafts of all behind it."""
    try:
        found = disk.listdir(directory)
    except FileNotFoundError:
        return
    swaps, cleaned = _of(found, SWAP), _of(found, CLEANED)
    first = next((name for name in swaps if name.endswith(".log" + SWAP)), None)
    if first is not None:
        swaps.remove(first)
        cleaned.append(first.removesuffix(SWAP) + CLEANED)
        disk.rename(f"{directory}/{first}", f"{directory}/{cleaned[-1]}")
    for name in (*swaps, *cleaned):
        disk.remove(f"{directory}/{name}")


def end_of(disk: Disk, path: str, base: int) -> int:
    """Behind the last batch of a new segment; the base offset of an empty one. `DamagedLog`, OSError."""
    file = disk.open(path)
    try:
        end = scan(file, disk.size(path), base, lambda _header, _view: None)
    finally:
        file.close()
    if end.fault is not None:
        raise DamagedLog(path, end.position, f"{end.fault}, in a segment that a cleaning has made")
    return end.next_offset


def _valid(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Those `.swap` files that are whole; the others go, and then the drafts."""
    cleaned, swaps = _of(names, CLEANED), _of(names, SWAP)
    first = min(map(_base, cleaned), default=None)
    for name in swaps:
        if first is not None and _base(name) >= first:
            disk.remove(f"{directory}/{name}")
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    return [name for name in swaps if first is None or _base(name) < first]


def _remove(
    disk: Disk, directory: str, base: int, suffix: str, present: set[str], *, but_log: bool = False
) -> None:
    """Remove the files of one segment, its `.log` last."""
    for ending in INDEXES if but_log else (*INDEXES, ".log"):
        name = f"{base:020d}{ending}{suffix}"
        if name in present:
            disk.remove(f"{directory}/{name}")
            present.discard(name)


def _of(names: list[str], suffix: str) -> list[str]:
    """The files of a cleaning that have come so far, by base offset. Without an offset it is none of them."""
    return sorted(name for name in names if name.endswith(suffix) and name[:20].isdigit())


def _base(name: str) -> int:
    return int(name[:20])


def _order(name: str) -> tuple[int, bool, str]:
    """By base offset, and of one segment the `.log` first: its old indexes are gone, the new may follow."""
    return _base(name), not name.endswith(".log" + SWAP), name
