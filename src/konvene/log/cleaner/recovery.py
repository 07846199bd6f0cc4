"""Completes or undoes an interrupted swap of cleaned segments, as Kafka's `LogLoader` does.

While the files of a new segment are written, their names end in `.cleaned`. If a start finds such files, the
cleaning was not finished: it deletes them, and the log stays as it was. When complete, they are renamed to
`.swap`, the `.log` first. While a `.cleaned` file remains, the `.swap` files of its base offset and of later
ones are incomplete, and a start deletes them too. Once none remains, the `.swap` files are complete and
durable: a start deletes the replaced segments and gives the new files their final names.

Kafka derives the replaced segments from the `.swap` file alone: all from its base offset up to its last
batch. If a cleaning kept nothing of the last replaced segment, that segment would remain. Therefore
`segment_swap` creates an empty `.swap` file for it. Kafka turns that file into an empty segment; here it is
deleted.

A crash may follow any step: a `.log.swap` remains until it is no longer needed, and every step can be
repeated. The same code completes a swap that Kafka began.
"""

from __future__ import annotations

from konvene.log.cleaner.contract import CLEANED, SWAP
from konvene.log.disk.files import Disk
from konvene.log.errors import DamagedLog
from konvene.log.recovery import scan

__all__ = ["INDEXES", "complete_swap", "is_interrupted", "remove_unfinished_files", "segment_end"]

INDEXES = (".index", ".timeindex", ".txnindex")


def is_interrupted(names: list[str]) -> bool:
    """Return True if a folder with these file names has files of an unfinished cleaning."""
    return bool(_with_suffix(names, CLEANED) or _with_suffix(names, SWAP))


def complete_swap(disk: Disk, directory: str, names: list[str]) -> int | None:
    """Complete or undo the swap of cleaned segments in a folder whose files are `names`.

    Returns the offset below which a completed swap may have left gaps between offsets, or None if no swap was
    completed. Raises `DamagedLog` if a new segment is incomplete, or OSError.
    """
    swaps = _valid(disk, directory, names)
    bases = sorted(_base(name) for name in swaps if name.endswith(".log" + SWAP))
    upto = _remove_replaced(disk, directory, bases) if bases else None
    for name in sorted(swaps, key=_order):
        path = f"{directory}/{name}"
        if disk.exists(path):
            disk.rename(path, path.removesuffix(SWAP))
    if swaps:
        disk.sync_directory(directory)
    return upto


def _remove_replaced(disk: Disk, directory: str, bases: list[int]) -> int:
    """Delete the segments that complete `.swap` files replace; return the base offset of the first later one.

    `bases`: base offsets of the `.swap` files. Without a later segment, returns the end of the last new one.
    """
    ends = {base: segment_end(disk, f"{directory}/{base:020d}.log{SWAP}", base) for base in bases}
    upto = max(ends.values())
    present = set(disk.listdir(directory))
    others = sorted({_base(name) for name in _with_suffix(list(present), ".log")}.difference(bases))
    for base in others:
        if bases[0] <= base < upto:
            _remove(disk, directory, base, "", present)
    for base in reversed(bases):
        _remove(disk, directory, base, "", present, keep_log=True)
        if base != bases[0] and ends[base] == base:  # Empty: it only marked a replaced segment.
            _remove(disk, directory, base, "", present)
            _remove(disk, directory, base, SWAP, present)
    return next((base for base in others if base >= upto), upto)


def remove_unfinished_files(disk: Disk, directory: str) -> None:
    """Delete the files of a cancelled cleaning; the folder may be missing.

    First a `.log.swap` is renamed back to `.cleaned`, so that after a crash the next start deletes the rest.
    """
    try:
        found = disk.listdir(directory)
    except FileNotFoundError:
        return
    swaps, cleaned = _with_suffix(found, SWAP), _with_suffix(found, CLEANED)
    first = next((name for name in swaps if name.endswith(".log" + SWAP)), None)
    if first is not None:
        swaps.remove(first)
        cleaned.append(first.removesuffix(SWAP) + CLEANED)
        disk.rename(f"{directory}/{first}", f"{directory}/{cleaned[-1]}")
    for name in (*swaps, *cleaned):
        disk.remove(f"{directory}/{name}")


def segment_end(disk: Disk, path: str, base: int) -> int:
    """Return the end offset of the new segment in `path`; its base offset if it is empty.

    Raises `DamagedLog` if it has an invalid batch, or OSError.
    """
    file = disk.open(path)
    try:
        end = scan(file, disk.size(path), base, lambda _header, _view: None)
    finally:
        file.close()
    if end.fault is not None:
        raise DamagedLog(path, end.position, f"{end.fault}, in a segment that a cleaning has made")
    return end.next_offset


def _valid(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Return the names of complete `.swap` files; delete the incomplete ones and the `.cleaned` files.

    `names`: all files of the folder.
    """
    cleaned, swaps = _with_suffix(names, CLEANED), _with_suffix(names, SWAP)
    first = min(map(_base, cleaned), default=None)
    for name in swaps:
        if first is not None and _base(name) >= first:
            disk.remove(f"{directory}/{name}")
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    return [name for name in swaps if first is None or _base(name) < first]


def _remove(
    disk: Disk, directory: str, base: int, suffix: str, present: set[str], *, keep_log: bool = False
) -> None:
    """Delete the `present` files of one segment, its `.log` last; with `keep_log`, all but the `.log`."""
    for ending in INDEXES if keep_log else (*INDEXES, ".log"):
        name = f"{base:020d}{ending}{suffix}"
        if name in present:
            disk.remove(f"{directory}/{name}")
            present.discard(name)


def _with_suffix(names: list[str], suffix: str) -> list[str]:
    """Return the names that begin with a base offset and end with the suffix, sorted."""
    return sorted(name for name in names if name.endswith(suffix) and name[:20].isdigit())


def _base(name: str) -> int:
    return int(name[:20])


def _order(name: str) -> tuple[int, bool, str]:
    """Return the sort key by which files are renamed: by base offset, the `.log` of each first."""
    return _base(name), not name.endswith(".log" + SWAP), name
