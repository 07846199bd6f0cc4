"""Bugs below the coordinators, that take a whole broker to be seen: in its files and its connections."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import BROKER, LOG, Mutant

FILES = (
    Mutant(
        "synced-but-for-the-data",
        LOG + "partition.py",
        ("G3", "G6"),
        "A sync writes indexes and epochs and not the records: a power cut takes what was acknowledged.",
        "            segment.write_indexes()\n        active.file.sync()\n",
        "            segment.write_indexes()\n",
        level=2,
    ),
    Mutant(
        "new-file-has-no-name-yet",
        LOG + "partition.py",
        ("G3", "G6"),
        "The directory is not synced after a file was made: a power cut takes the whole file.",
        "            self._directory_unsynced = False\n            self._disk.sync_directory(self.directory)\n",
        "            self._directory_unsynced = False\n",
        level=2,
        would_be_caught_by="A power cut right after a file was made, before a checkpoint: topics made in the chaos, small segments.",
    ),
    Mutant(
        "failed-sync-is-taken-for-done",
        LOG + "partition.py",
        ("G6",),
        "The disk says that it could not sync, and what was written is acknowledged all the same.",
        "                self._write_epochs()\n            except OSError as error:\n"
        '                self.health.fail(f"cannot sync {self.directory}", error)\n'
        "            self.synced_offset = max(goal, self.synced_offset)\n",
        "                self._write_epochs()\n            except OSError:\n"
        "                pass\n"
        "            self.synced_offset = max(goal, self.synced_offset)\n",
        level=2,
    ),
    Mutant(
        "torn-batches-are-taken",
        LOG + "recovery.py",
        ("G4",),
        "After a power cut a batch of which only a part reached the disk is taken for whole.",
        "    try:\n        check(batch, header)\n    except CodecError as error:\n        return str(error)\n"
        "    if header.base_offset",
        "    if header.base_offset",
        level=2,
    ),
    Mutant(
        "torn-tail-is-damage",
        LOG + "recovery.py",
        ("L7",),
        "A batch that a power cut tore keeps its partition from being opened.",
        "    torn = segments[at]\n    if _is_whole(torn.file, end.position):\n",
        "    torn = segments[at]\n    if torn.file.size() > end.position:\n",
        level=2,
    ),
    Mutant(
        "torn-tail-stays",
        LOG + "opening.py",
        ("G1", "G3"),
        "What a power cut tore is left in the file, and what is written next stands behind it.",
        "                cut = self._cut(segments, at, end.position)\n",
        "                cut = size - end.position\n",
        level=2,
    ),
    Mutant(
        "recovered-and-not-synced",
        LOG + "opening.py",
        ("G3", "G6"),
        "What was read after a crash of the process counts as durable, and the next power cut takes it.",
        "                segment.file.sync()\n            self._disk.sync_directory(self._directory)\n"
        "        for segment in segments[first:-1]:\n",
        "                pass\n        for segment in segments[first:-1]:\n",
        level=2,
    ),
)

ANSWERS = (
    Mutant(
        "journal-takes-written-for-synced",
        "runtime/journal.py",
        ("G6",),
        "Answers of coordinators leave when their records are written; a power cut takes them back.",
        "        return self._partition.synced_offset if self._durable else self._partition.end_offset\n",
        "        return self._partition.end_offset\n",
        level=2,
    ),
    Mutant(
        "acknowledged-before-it-is-synced",
        BROKER + "handlers/produce.py",
        ("G6",),
        "Records are acknowledged when they are written, though topics are to be synced.",
        "    if unsynced:\n        return _when_durable(results, _start_syncs(unsynced))\n",
        "    if unsynced:\n        _start_syncs(unsynced)\n",
        level=2,
    ),
    Mutant(
        "readers-overtake-the-disk",
        "broker/storage/partitions.py",
        ("O2",),
        "Consumers read and commit what a power cut takes back, and never read what takes its place.",
        "        return self.log.synced_offset if self._hides_unsynced else self.log.end_offset\n",
        "        return self.log.end_offset\n",
        level=2,
    ),
    Mutant(
        "remembered-heartbeat-moves-no-session",
        "runtime/coordinator.py",
        ("L4", "L5"),
        "A heartbeat answered from memory does not count, and its member loses its session.",
        "        self._set_timers(cached.timers)\n        return True\n",
        "        return True\n",
        level=2,
    ),
    Mutant(
        "duplicates-are-appended",
        LOG + "partition.py",
        ("G8",),
        "A batch that an idempotent producer sends again, because its answer was lost, is there twice.",
        "                if known is not None:\n                    return Appended(",
        "                if known is not None and known.first_offset < 0:\n                    return Appended(",
        level=2,
    ),
    Mutant(
        "gone-connections-are-counted",
        "broker/net/connection.py",
        ("G11",),
        "A connection that is gone stays in the broker's books, until it lets nobody in any more.",
        "            del self._network.connections[self]\n            self._network.connection_quotas",
        "            self._network.connection_quotas",
        level=2,
    ),
    Mutant(
        "what-came-ahead-is-forgotten",
        "broker/net/connection.py",
        ("G12",),
        "A request that was read while another one was answered is answered only when more bytes come.",
        "        self._busy = False\n        if self._unprocessed and not self._is_processing:\n            self._process_frames()\n\n    def _mute",
        "        self._busy = False\n\n    def _mute",
        level=2,
        would_be_caught_by="Clients that ask again on a connection before they are answered; ours do not.",
    ),
)

STORAGE = (*FILES, *ANSWERS)
