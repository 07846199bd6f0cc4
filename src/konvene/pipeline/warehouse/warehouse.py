"""The warehouse: a directory of Parquet files, and the manifests that list them.

    <layer>/<table>/[<cluster>/]<topic>-<partition>/<first>-<last>-v1-<checksum>.parquet
    _manifest/00000000000000000042.json

A step (an ingest, a build) writes its files first and then one manifest: the files that it added and removed,
the ledger of each log, and the row of the run. The manifest appears atomically, so a step has happened or
not; files in no manifest do not exist and are deleted by the next step. Manifest numbers rise by one and each
is created once: of two concurrent writers one fails without effect. A reader uses the newest manifest and is
not disturbed by later ones; files that a step removed are kept until the step after the next one begins.

Every `FOLD` manifests all are folded into one, `<number>.folded.json`; manifests older than two folds are
deleted.

On one machine a kernel lock, which ends with its holder, stops a second writer before it starts. On file
systems without such a lock across machines, the manifest number still lets only one of them win.
"""

# Manifests are placed by system calls whose promises are known:
# ruff: noqa: PTH108, PTH116, PTH208

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from konvene.log.disk.files import RealDisk
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.parquet import Written

__all__ = ["FOLD", "FORMAT", "Conflict", "DamagedWarehouse", "DataFile", "Snapshot", "Warehouse", "folder_of"]

FORMAT = 1
FOLD = 16
_MANIFEST = re.compile(r"([0-9]{20})\.json\Z")
_FOLDED = re.compile(r"([0-9]{20})\.folded\.json\Z")
_LAYERS = ("bronze", "silver", "gold")


class Conflict(RuntimeError):
    """Another process is writing to this warehouse, or has just done so. Nothing was changed; retry."""


class DamagedWarehouse(RuntimeError):
    """A manifest, or a file that one names, is missing or corrupt."""


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    table: str
    path: str
    """Path relative to the warehouse's directory."""
    cluster: str
    topic: str
    """Topic of the log that the file was made from; empty if it was not made from one log."""
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    sha256: str
    family: str = ""
    """For bronze files of `__consumer_offsets`: `commits` (types 0 and 1) or `groups` (all others)."""

    @classmethod
    def made(
        cls, table: str, folder: str, of: Partition, first: int, last: int, file: Written, family: str = ""
    ) -> DataFile:
        """Build the entry of a file that was just written to a folder of the warehouse."""
        where = of.cluster, of.topic, of.partition, first, last
        return cls(table, f"{folder}/{file.name}", *where, file.rows, file.bytes, file.sha256, family)

    @property
    def of(self) -> Partition:
        return Partition(self.cluster, self.topic, self.partition)

    @property
    def place(self) -> tuple[str, str, int, int, int, str]:
        """Sort key that orders files by log and offset."""
        return self.cluster, self.topic, self.partition, self.first_offset, self.last_offset, self.path


@dataclass(slots=True)
class Snapshot:
    """The state of a warehouse after the manifests up to `number`."""

    number: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    """State that steps keep from run to run, by keys of their own."""
    runs: list[Mapping[str, object]] = field(default_factory=list)
    """Rows of `pipeline_run`."""
    removed: list[str] = field(default_factory=list)
    """Paths that the last step removed; readers may still use them."""

    def __repr__(self) -> str:
        return f"<snapshot {self.number} with {len(self.files)} files>"

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply the manifest that follows `number`."""
        for path in manifest["removed"]:
            del self.files[path]
        for row in manifest["added"]:
            self.files[row["path"]] = DataFile(**row)
        self.ledger.update(manifest["ledger"])
        self.runs += [manifest["run"]] if manifest["run"] is not None else []
        self.removed = list(manifest["removed"])
        self.number = manifest["number"]


class Warehouse:
    """A directory of tables, as its newest manifest described it at creation or the last `refresh`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._manifests = self.path / "_manifest"
        self.snapshot = Snapshot()
        self.refresh()

    def __repr__(self) -> str:
        return f"<warehouse {self.path}, {self.snapshot!r}>"

    # reading --------------------------------------------------------------------------------------

    def refresh(self) -> Snapshot:
        """Load the newest manifest. Raises `DamagedWarehouse` if one is missing or unreadable."""
        for _ in range(5):
            with contextlib.suppress(FileNotFoundError):  # Folded meanwhile: look again.
                self.snapshot = self._load()
                return self.snapshot
        self.snapshot = self._load()
        return self.snapshot

    def files(
        self,
        table: str,
        topic: str | None = None,
        partition: int | None = None,
        *,
        cluster: str | None = None,
        family: str | None = None,
    ) -> list[DataFile]:
        """Return the files of a table that match all given arguments, ordered by log and offset."""
        found = (
            f
            for f in self.snapshot.files.values()
            if f.table == table
            and (topic is None or f.topic == topic)
            and (partition is None or f.partition == partition)
            and (cluster is None or f.cluster == cluster)
            and (family is None or f.family == family)
        )
        return sorted(found, key=lambda f: f.place)

    def tables(self) -> list[str]:
        """Return the names of the tables that have files."""
        return sorted({f.table for f in self.snapshot.files.values()})

    def where(self, file: DataFile) -> str:
        """Return a file's path on this machine."""
        return str(self.path / file.path)

    # writing --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[Snapshot]:
        """Hold the write lock within the block.

        Refreshes, and deletes leftovers of earlier steps. Raises `Conflict` if another process has the
        lock."""
        self._manifests.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._manifests / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"{self.path}: another process is writing to this warehouse") from None
            snapshot = self.refresh()
            self._clean()
            yield snapshot
        finally:
            os.close(handle)

    def commit(
        self,
        step: str,
        added: Iterable[DataFile],
        removed: Iterable[str | DataFile] = (),
        *,
        ledger: Mapping[str, object] | None = None,
        run: Mapping[str, object] | None = None,
    ) -> int:
        """Commit a step and return the number of its manifest.

        `ledger` has the entries to set, `run` the row of `pipeline_run`. Raises `Conflict` if another step
        was committed first."""
        number = self.snapshot.number + 1
        new = sorted(added, key=lambda f: f.path)
        deleted = sorted({f if isinstance(f, str) else f.path for f in removed} - {f.path for f in new})
        manifest = {
            "format": FORMAT,
            "number": number,
            "step": step,
            "added": [f._asdict() for f in new],
            "removed": deleted,
            "ledger": ledger or {},
            "run": run,
        }
        self._manifests.mkdir(parents=True, exist_ok=True)
        self._settle(new)
        self._place(f"{number:020}.json", manifest, anew=True)
        self.snapshot.apply(manifest)
        if number % FOLD == 0:
            self._fold()
        return number

    def _settle(self, files: list[DataFile]) -> None:
        """Check that all files exist with their size, and sync them to disk."""
        for file in files:
            try:
                size = os.stat(self.path / file.path).st_size
            except FileNotFoundError:
                size = -1
            if size != file.bytes:
                raise DamagedWarehouse(f"{file.path} should have {file.bytes} bytes and has {size}")
        if files and not RealDisk().settle(str(self.path)):
            for file in files:
                _sync(self.path / file.path)
            for folder in sorted({(self.path / file.path).parent for file in files}):
                _sync(folder)

    def _place(self, name: str, value: Mapping[str, object], *, anew: bool) -> None:
        """Write a manifest atomically.

        With `anew` it must not exist yet: raises `Conflict`."""
        handle, draft = tempfile.mkstemp(".part", ".", self._manifests)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file, sort_keys=True, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            try:
                (os.link if anew else os.replace)(draft, self._manifests / name)
            except FileExistsError:
                raise Conflict(f"{self.path}: another step came first, as number {int(name[:20])}") from None
            _sync(self._manifests)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)

    def _fold(self) -> None:
        now = self.snapshot
        state = {
            "format": FORMAT,
            "number": now.number,
            "files": [f._asdict() for f in now.files.values()],
            "ledger": now.ledger,
            "runs": now.runs,
            "removed": now.removed,
        }
        self._place(f"{now.number:020}.folded.json", state, anew=False)
        before = self.snapshot.number - FOLD
        for name in sorted(os.listdir(self._manifests)):
            match = _MANIFEST.match(name) or _FOLDED.match(name)
            if match is not None and int(match[1]) < before:
                os.unlink(self._manifests / name)

    # the directory --------------------------------------------------------------------------------

    def _load(self) -> Snapshot:
        names = sorted(os.listdir(self._manifests)) if self._manifests.is_dir() else []
        folded = [name for name in names if _FOLDED.match(name)]
        snapshot = Snapshot()
        if folded:
            state = self._read(folded[-1])
            files = {row["path"]: DataFile(**row) for row in state["files"]}
            snapshot = Snapshot(state["number"], files, state["ledger"], state["runs"], state["removed"])
        for name in names:
            match = _MANIFEST.match(name)
            if match is None or int(match[1]) <= snapshot.number:
                continue
            if int(match[1]) != snapshot.number + 1:
                raise DamagedWarehouse(f"{self.path}: manifest {snapshot.number + 1} is missing")
            snapshot.apply(self._read(name))
        return snapshot

    def _read(self, name: str) -> dict[str, Any]:
        path = self._manifests / name
        try:
            value: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise DamagedWarehouse(f"{path}: {error}") from None
        if value["format"] != FORMAT:
            raise DamagedWarehouse(f"{path}: format {value['format']} is not known, {FORMAT} is")
        return value

    def _clean(self) -> None:
        """Delete files that no manifest names, except those that the last step removed."""
        kept = {*self.snapshot.files, *self.snapshot.removed}
        for layer in _LAYERS:
            for folder, below, names in os.walk(self.path / layer, topdown=False):
                for name in names:
                    path = Path(folder, name)
                    if path.relative_to(self.path).as_posix() not in kept:
                        path.unlink()
                if not below or not os.listdir(folder):
                    with contextlib.suppress(OSError):
                        Path(folder).rmdir()
        for name in os.listdir(self._manifests):
            if name.endswith(".part"):
                (self._manifests / name).unlink()


def folder_of(layer: str, table: str, of: Partition) -> str:
    """Return the folder of a table's files for a log, relative to the warehouse's directory."""
    parts = [layer, table, quote(of.cluster, safe="") if of.cluster else None]
    parts.append(f"{of.topic}-{of.partition}" if of.topic else None)
    return "/".join(part for part in parts if part is not None)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
