"""Bugs in share groups: who delivers, the share coordinator, and the groups themselves."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import DELIVERY, SHARE, SHARE_STATE, Mutant

DELIVERIES = (
    Mutant(
        "released-at-the-limit-is-available", DELIVERY + "acknowledge.py", ("SH3",),
        "A record that was delivered as often as may be is delivered once more.",
        "    if cell.count < terms.delivery_count_limit:\n", "    if cell.count <= terms.delivery_count_limit:\n",
        level=7,
    ),
    Mutant(
        "anybody-acknowledges", DELIVERY + "acknowledge.py", ("SH6",),
        "Who does not have a record says what became of it.",
        "    elif cell.member_id != member_id:\n", "    elif not cell.member_id:\n",
        level=7,
    ),
    Mutant(
        "count-does-not-rise", DELIVERY + "acquire.py", ("SH3",),
        "A record that nobody can process is delivered for ever.",
        "        cell.count += 1\n        cell.acquired_ms", "        cell.count += 0\n        cell.acquired_ms",
        level=7,
    ),
    Mutant(
        "taken-without-a-lock", DELIVERY + "acquire.py", ("SH2", "L6"),
        "A record that is delivered again has no lock: if its holder dies it is nobody's.",
        "        window.locks.lock(cell, self.lock_end_ms)\n\n    # --- offsets beyond the window ---\n",
        "\n    # --- offsets beyond the window ---\n",
        level=7,
    ),
    Mutant(
        "what-is-being-written-is-given-out", DELIVERY + "acquire.py", ("SH2", "SH8"),
        "A record whose release is being written is another's already; the write fails, and two have it.",
        "            if cell.state is not AVAILABLE or cell.change is not None:\n                at += 1\n                continue\n",
        "            if cell.state is not AVAILABLE:\n                at += 1\n                continue\n",
        level=7,
    ),
    Mutant(
        "new-batch-has-no-lock", DELIVERY + "acquire.py", ("SH2", "L6"),
        "Records that are delivered for the first time stay their member's for ever.",
        "        window.add(cell)\n        window.locks.lock(cell, self.lock_end_ms)\n", "        window.add(cell)\n",
        level=7,
    ),
    Mutant(
        "undone-is-not-given-back", DELIVERY + "partition.py", ("SH6", "SH8"),
        "An acknowledgement that could not be written holds all the same, and is gone after a restart.",
        "            window.move(cell, ACQUIRED, pending.member_id)\n            if lapsed:\n",
        "            window.move(cell, cell.state, pending.member_id)\n            if lapsed:\n",
        level=7,
    ),
    Mutant(
        "lapsed-lock-is-forgotten", DELIVERY + "partition.py", ("SH8", "L6"),
        "A lock that ended while the write was under way, which then failed: nobody ever takes it off.",
        "            if lapsed:\n                cell.lock_end_ms = NO_LOCK\n                self._release(cell, released)\n",
        "            if lapsed:\n                cell.lock_end_ms = NO_LOCK\n",
        level=7,
    ),
    Mutant(
        "release-takes-nothing-back", DELIVERY + "partition.py", ("SH12",),
        "What a member has when it leaves stays locked.",
        "            if cell.state is ACQUIRED and cell.member_id == member_id:\n                self._release(cell, pending)\n",
        "            if cell.state is ACQUIRED and cell.member_id == member_id and cell.batch is not None:\n                self._release(cell, pending)\n",
        level=7,
    ),
    Mutant(
        "release-takes-from-all", DELIVERY + "partition.py", ("SH2", "SH12"),
        "A member leaves, and what others have is given back as well.",
        "            if cell.state is ACQUIRED and cell.member_id == member_id:\n                self._release(cell, pending)\n",
        "            if cell.state is ACQUIRED:\n                self._release(cell, pending)\n",
        level=7,
    ),
    Mutant(
        "locks-end-early", DELIVERY + "locks.py", ("SH2",),
        "A record is another's while its holder still may have it.",
        "        while heap and heap[0][0] <= now_ms:\n", "        while heap and heap[0][0] <= now_ms + 500:\n",
        level=7,
    ),
    Mutant(
        "start-passes-over-what-is-being-written", DELIVERY + "window.py", ("SH4", "SH7"),
        "The start moves over records whose acknowledgement may yet fail.",
        "            if (state is not ACKNOWLEDGED and state is not ARCHIVED) or cell.change is not None:\n",
        "            if state is not ACKNOWLEDGED and state is not ARCHIVED:\n",
        level=7,
    ),
    Mutant(
        "gaps-are-not-read-again", DELIVERY + "loading.py", ("SH7",),
        "Records that a former leader gave out and that nobody acknowledged are lost with it (KAFKA-18022).",
        "        if first > known:\n            gaps.append((known, first - 1))\n", "",
        level=7,
    ),
    Mutant(
        "acknowledged-is-loaded-as-available", DELIVERY + "loading.py", ("SH6",),
        "After a restart, what was acknowledged is delivered again.",
        "RecordState.AVAILABLE if written_state is RecordState.ACQUIRED else written_state\n",
        "RecordState.AVAILABLE if written_state is RecordState.ACKNOWLEDGED else written_state\n",
        level=7,
    ),
    Mutant(
        "counts-are-not-loaded", DELIVERY + "loading.py", ("SH3",),
        "After a restart a record that nobody can process is delivered as often again.",
        "Cell(first, last, loaded, count)", "Cell(first, last, loaded, 0)",
        level=7,
    ),
)  # fmt: skip

COORDINATORS = (
    Mutant(
        "older-state-epoch-writes", "share_state/transitions.py", ("SH9",),
        "Who delivers from a state that was replaced overwrites the new one.",
        "    if known is None or state_epoch >= known.highest_state_epoch:\n        return None\n",
        "    if known is None or state_epoch >= 0:\n        return None\n",
        level=7,
        would_be_caught_by="offsets that are altered while a write is under way: no fault of the simulator does it",
    ),
    Mutant(
        "write-keeps-the-old-start", "share_state/transitions.py", ("SH4", "SH6"),
        "A write that moves the start is answered and does not move it.",
        "    start_offset = max(start_offset, known.start_offset)\n", "    start_offset = known.start_offset\n",
        level=7,
    ),
    Mutant(
        "start-goes-back", "share_state/transitions.py", ("SH4",),
        "A write that comes late takes the start back.",
        "    start_offset = max(start_offset, known.start_offset)\n", "    start_offset = min(start_offset, known.start_offset) if start_offset >= 0 else known.start_offset\n",
        level=7,
    ),
    Mutant(
        "snapshot-forgets-batches", "share_state/transitions.py", ("SH6", "SH10"),
        "A snapshot has the batches of the last write alone.",
        "        batches=combine(known.batches, written.batches, written.start_offset),\n        create_timestamp",
        "        batches=written.batches,\n        create_timestamp",
        level=7,
    ),
    Mutant(
        "no-snapshot-is-due", "share_state/transitions.py", ("SH10",),
        "The log of share state grows for ever.",
        "    if known.updates < shard.updates_per_snapshot:\n", "    if known.updates <= shard.updates_per_snapshot:\n",
        level=7,
    ),
    Mutant(
        "uninitialized-is-read", "share_state/transitions.py", ("SH11",),
        "Who reads a share partition that has not begun is told that there is nothing, and begins where it likes.",
        "        return _answered(context, StateAnswer(Errors.INVALID_REQUEST, READ_UNINITIALIZED))\n",
        "        return _answered(context, StateAnswer())\n",
        level=7,
        would_be_caught_by="members that fetch what they were not assigned, early enough",
    ),
    Mutant(
        "update-replaces-what-is-known", SHARE_STATE + "state.py", ("SH6", "SH10"),
        "An update is all that is known: what was acknowledged before is delivered again.",
        "        combine(known.batches, new, start_offset),\n        known.create_timestamp",
        "        combine((), new, start_offset),\n        known.create_timestamp",
        level=7,
    ),
    Mutant(
        "topics-that-are-gone-are-kept", "share_state/pruning.py", ("SH13",),
        "State of deleted topics stays for ever.",
        "    return _delete(shard, [key for key in shard.states if key.topic_id in deleted.topic_ids], context)\n",
        "    return _delete(shard, [key for key in shard.states if key.topic_id in deleted.topic_ids][1:], context)\n",
        level=7,
    ),
)  # fmt: skip

GROUPS_THAT_SHARE = (
    Mutant(
        "added-partitions-begin-at-the-reset", SHARE + "initialize.py", ("SH7", "SH11"),
        "Records of a partition that was added are missed (KAFKA-19463).",
        "    if topic in state.initialized:\n        return 0\n", "    if topic in state.initialized:\n        return RESET\n",
        level=7,
    ),
    Mutant(
        "assigned-before-it-has-begun", SHARE + "targets.py", ("SH11",),
        "Members are given partitions that the share coordinator knows nothing of.",
        "        initialized = state.initialized[topic].partitions if topic in state.initialized else ()\n",
        "        initialized = tuple(range(count))\n",
        level=7,
    ),
    Mutant(
        "older-epoch-is-taken", SHARE + "heartbeat.py", ("M10",),
        "A member that was replaced goes on.",
        "    if epoch < known and epoch != previous:\n", "    if epoch < 0 and epoch != previous:\n",
        level=7,
    ),
    Mutant(
        "who-joins-has-no-session", SHARE + "heartbeat.py", ("M4", "L4"),
        "A member that dies is never missed.",
        "    decision.arm_session(settled)\n    decision.reply", "    decision.reply",
        level=7,
    ),
    Mutant(
        "not-begun-is-called-begun", SHARE + "initialize.py", ("SH11",),
        "What the share coordinator could not begin with is written down as begun.",
        "    after = before.with_initialized(begun)\n",
        "    after = before.with_initialized({**begun, **failed})\n",
        level=7,
    ),
    Mutant(
        "written-is-not-waited-for", "broker/shares/share_partition.py", ("SH6",),
        "A member is told that its acknowledgement is kept before it is.",
        "            self._write(change, result)\n        return result\n",
        "            self._write(change, None)\n            result.resolve(SUCCESS)\n        return result\n",
        level=7,
    ),
    Mutant(
        "lost-connections-keep-records", "broker/shares/share_partitions.py", ("SH12",),
        "What a member had when it left its group stays locked.",
        "        self.sessions.remove(group_id, member_id)\n        for served in self.of_group(group_id):\n            served.release(member_id)\n",
        "        self.sessions.remove(group_id, member_id)\n",
        level=7,
    ),
)  # fmt: skip

WHAT_ADMINISTRATORS_ASK = (
    Mutant(
        "offsets-are-altered-under-members", SHARE + "offsets.py", ("SH7",),
        "The offsets of a group that reads are altered, and its members go on where they were.",
        "    if not group.is_empty:\n        raise GroupError(Errors.NON_EMPTY_GROUP, MESSAGES[Errors.NON_EMPTY_GROUP])\n    return group\n",
        "    return group\n",
        level=7,
    ),
    Mutant(
        "altered-at-the-same-epoch", SHARE + "offsets.py", ("SH7", "SH9"),
        "Who served a share partition before its offset was altered can still write.",
        "        decision.bump(decision.metadata_hash)\n", "",
        level=7,
    ),
    Mutant(
        "altered-offsets-stay", "share_state/transitions.py", ("SH7",),
        "An offset is altered, the administrator told so, and the group goes on where it was.",
        "        start_offset=start_offset,\n        delivery_complete_count=UNKNOWN_COUNT if",
        "        start_offset=start_offset if known is None else known.start_offset,\n        delivery_complete_count=UNKNOWN_COUNT if",
        level=7,
    ),
    Mutant(
        "altered-state-keeps-its-records", "share_state/transitions.py", ("SH7", "SH10"),
        "What was acknowledged before its offset was altered is not given out again.",
        "        batches=(),\n        create_timestamp=context.now_ms,\n", "        batches=() if known is None else known.batches,\n        create_timestamp=context.now_ms,\n",
        level=7,
    ),
    Mutant(
        "reads-what-is-not-decided", "broker/shares/share_partition.py", ("TX4",),
        "A group that reads what is committed is given records of transactions that are open.",
        "        return self.partition.log.last_stable_offset(end) if self.core.terms.read_committed else end\n",
        "        return end\n",
        level=7,
    ),
    Mutant(
        "aborted-is-not-looked-for", "broker/shares/share_partition.py", ("TX4",),
        "A group that reads what is committed is given what was aborted.",
        "        if self.core.terms.read_committed and partition_log.aborted:\n", "        if not self.core.terms.read_committed and partition_log.aborted:\n",
        level=7,
    ),
    Mutant(
        "aborted-for-ever", DELIVERY + "aborted.py", ("SH7", "TX4"),
        "After one transaction of a producer was aborted, those that it commits are passed over as well.",
        "            del open_ids[header.producer_id]\n", "            continue\n",
        level=7,
    ),
    Mutant(
        "one-session-too-many", DELIVERY + "sessions.py", ("SH12",),
        "There is one share session more than may be.",
        "        if len(self._sessions) >= self.limit or", "        if len(self._sessions) > self.limit or",
        level=7,
    ),
    Mutant(
        "cut-at-the-newest-snapshot", "share_state/pruning.py", ("SH10",),
        "The log of share state is cut where the last snapshot is, and the others go.",
        "        first = min(self._offsets.values(), default=self._deleted_at)\n",
        "        first = max(self._offsets.values(), default=self._deleted_at)\n",
        level=7,
    ),
)  # fmt: skip

SHARE_GROUPS = (*DELIVERIES, *COORDINATORS, *GROUPS_THAT_SHARE, *WHAT_ADMINISTRATORS_ASK)
