"""Bugs in streams groups: tasks and processes, epochs, targets, topologies, static members, responses.

Random runs of the core (`tests/groups/streams`) with the simulator's invariants detect them.
"""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import Mutant


def _row(name: str, file: str, ids: tuple[str, ...], breaks: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, ids, breaks, old, new, level=4)


TASKS = (
    _row(
        "task-is-run-while-another-runs-it", "groups/streams/current_assignment.py", ("T1",),
        "A member is given a task to run before the one that runs it has given it up.",
        "            return not (has_owner or others_have(Role.STANDBY) or others_have(Role.WARMUP))\n",
        "            return not (others_have(Role.STANDBY) or others_have(Role.WARMUP))\n",
    ),
    _row(
        "active-beside-a-standby-of-the-process", "groups/streams/current_assignment.py", ("T2",),
        "A member runs a task whose state another member of its process still has as a standby.",
        "            return not (has_owner or others_have(Role.STANDBY) or others_have(Role.WARMUP))\n",
        "            return not has_owner\n",
    ),
    _row(
        "standby-beside-an-active-of-the-process", "groups/streams/current_assignment.py", ("T2",),
        "A member gets a standby of a task that another member of its process still runs.",
        "            return not (others_have(Role.ACTIVE) or process_has(Role.STANDBY) or others_have(Role.WARMUP))\n",
        "            return not (process_has(Role.STANDBY) or others_have(Role.WARMUP))\n",
    ),
    _row(
        "standby-beside-a-standby-of-the-process", "groups/streams/current_assignment.py", ("T2",),
        "Two members of one process have a standby of the same task.",
        "            return not (others_have(Role.ACTIVE) or process_has(Role.STANDBY) or others_have(Role.WARMUP))\n",
        "            return not others_have(Role.ACTIVE)\n",
    ),
    _row(
        "promoted-standby-is-revoked", "groups/streams/current_assignment.py", ("M5", "T3"),
        "A standby that is to become active has to be given up first, and its state is lost.",
        "    revoked.difference_update(promoted)\n",
        "",
    ),
    _row(
        "keep-alive-confirms-tasks", "groups/streams/current_assignment.py", ("M6",),
        "A heartbeat that does not say what its member has counts as if it had nothing.",
        "    if owned is None:\n        return True\n    return any(",
        "    if owned is None:\n        return False\n    return any(",
    ),
    _row(
        "any-report-confirms-tasks", "groups/streams/current_assignment.py", ("M6",),
        "A heartbeat that still names what was to be given up confirms it.",
        "            if _owns_any(owned, current.pending_revocation):\n",
        "            if owned is None:\n",
    ),
    _row(
        "tasks-that-wait-are-never-given", "groups/streams/current_assignment.py", ("L1",),
        "A member that waits for a task does not get it when it is free.",
        "        case MemberState.UNRELEASED_TASKS:\n            return _reconciled(current, target, owned, current.epoch)\n",
        "        case MemberState.UNRELEASED_TASKS:\n            return current\n",
    ),
    _row(
        "task-epochs-begin-anew", "groups/streams/current_assignment.py", ("O1",),
        "A task that a member keeps counts from its newest epoch, and its late commits are refused.",
        "            epochs[partition] = since.get(subtopology, {}).get(partition, epoch)\n",
        "            epochs[partition] = epoch\n",
    ),
    _row(
        "some-roles-are-left-unsaid", "groups/streams/validate.py", ("M6",),
        "A heartbeat that says what its member runs, and nothing of its copies, is not refused.",
        "         lambda r: _when(_has_some_null_roles(r))),\n",
        "         lambda r: None),\n",
    ),
)  # fmt: skip

EPOCHS = (
    _row(
        "streams-epoch-rises-by-two", "groups/streams/decision.py", ("T13",),
        "One change moves the group's epoch twice.",
        "        self.epoch += 1\n",
        "        self.epoch += 2\n",
    ),
    _row(
        "static-member-that-is-back-moves-the-epoch", "groups/streams/heartbeat.py", ("T13", "KAFKA-20169"),
        "A static member's new host or timeout starts a rebalance.",
        "    if request.instance_id is not None and not affects_targets:\n",
        "    if request.instance_id is None and not affects_targets:\n",
    ),
    _row(
        "settings-of-targets-are-not-seen", "groups/streams/epoch_bumps.py", ("T13",),
        "More standbys are configured, and nobody gets one until somebody joins.",
        "    if decision.assignment_configs != decision.group.assignment_configs and not changed:\n",
        "    if decision.assignment_configs != decision.assignment_configs and not changed:\n",
    ),
    _row(
        "topics-that-changed-are-not-seen", "groups/streams/topology/resolution.py", ("T13", "T10", "KAFKA-19521"),
        "A source that was deleted, or has grown, is not seen before members come or go.",
        "    if before is not None and decision.soft.hashed_topics is context.topics and not replaced:\n",
        "    if before is not None and not replaced:\n",
    ),
    _row(
        "state-rests-on-heartbeats", "groups/streams/topology/resolution.py", ("T10", "KAFKA-19661"),
        "That the topology was found ready is not in the log, and the group is NotReady after a restart.",
        "        decision.validated_topology_epoch = topology.epoch if configured.is_ready else -1\n",
        "        decision.validated_topology_epoch = before\n",
    ),
    _row(
        "empty-streams-group-is-assigning", "groups/streams/leave.py", ("M9", "KAFKA-20442"),
        "When the last member is gone the group's epoch is ahead of its assignment's for ever.",
        "        decision.assign_nothing()\n",
        "",
    ),
    _row(
        "streams-member-ahead-is-accepted", "groups/streams/heartbeat.py", ("M10",),
        "A member may be at an epoch that the coordinator has not reached, as after a lost log.",
        "    if epoch in (JOIN, current.epoch):\n        return\n    if epoch == current.previous_epoch",
        "    if epoch == JOIN or epoch >= current.epoch:\n        return\n    if epoch == current.previous_epoch",
    ),
    _row(
        "previous-streams-epoch-has-anything", "groups/streams/heartbeat.py", ("M10",),
        "A member at its last epoch is accepted although it has what it was not given.",
        "    if epoch == current.previous_epoch < current.epoch and _is_subset(owned, current):\n",
        "    if epoch == current.previous_epoch < current.epoch:\n",
    ),
    _row(
        "fenced_member_epoch-streams-member-cannot-come-back", "groups/streams/heartbeat.py", ("M10", "KAFKA-19233"),
        "A member that the group still knows is fenced_member_epoch when it joins again with epoch 0.",
        "    if epoch in (JOIN, current.epoch):\n        return\n    if epoch == current.previous_epoch",
        "    if epoch == current.epoch:\n        return\n    if epoch == current.previous_epoch",
    ),
)  # fmt: skip

TARGETS = (
    _row(
        "tasks-while-topics-are-missing", "groups/streams/targets.py", ("T10",),
        "Tasks are assigned while internal topics are still missing.",
        "    if not configured.is_ready or decision.topology is None:\n",
        "    if not configured.tasks or decision.topology is None:\n",
    ),
    _row(
        "standbys-of-what-has-no-state", "groups/streams/racks.py", ("T7",),
        "Tasks without state have standbys.",
        "Subtopology(count, topology.is_stateful(name), ",
        "Subtopology(count, True, ",
    ),
    _row(
        "no-second-target-of-tasks", "groups/streams/targets.py", ("L1",),
        "After its first target a group gets no other.",
        "    return last_ms == 0 or not waits or decision.replaces_topology\n",
        "    return last_ms == 0 or decision.replaces_topology\n",
    ),
    _row(
        "the-delay-has-no-end", "groups/streams/targets.py", ("L1",),
        "The first target of a group is put off for ever.",
        "    decision.remember(delayed=False)\n    configured =",
        "    configured =",
    ),
    _row(
        "late-target-of-who-was-replaced", "groups/streams/targets.py", ("T1", "T12"),
        "A target comes that was computed while a static member came back: its new id is given nothing.",
        " or not targets.keys() <= group.members.keys():",
        ":",
    ),
    _row(
        "unknown-target-is-waited-for", "groups/streams/targets.py", ("L1",),
        "A target that could not be computed is waited for for ever.",
        "    decision.remember(computing=0)\n    if isinstance(targets, GroupError)",
        "    if isinstance(targets, GroupError)",
    ),
    _row(
        "topology-is-replaced", "groups/streams/validate.py", ("T8",),
        "Who joins with another topology of the same epoch runs it, and the others what they had.",
        "    if mode == KAFKA:\n        raise GroupError(Errors.INVALID_REQUEST, \"Topology updates are not supported yet.\")\n",
        "    if mode == KAFKA:\n        return Topology.from_request(sent)\n",
    ),
    _row(
        "strange-tasks-are-accepted", "groups/streams/validate.py", ("T12",),
        "A member may own tasks that there are not.",
        "        if not 0 <= partition < count:\n",
        "        if not 0 <= partition:\n",
    ),
)  # fmt: skip

RESPONSES = (
    _row(
        "lost-answer-is-lost-for-good", "groups/streams/heartbeat.py", ("M10", "L1"),
        "A member that lost an answer is not told its tasks again, and nobody runs them.",
        "request.member_epoch == JOIN or is_changed or _may_have_missed_tasks(request, owned, old)\n",
        "request.member_epoch == JOIN or is_changed\n",
    ),
    _row(
        "endpoints-are-told-when-they-change", "groups/streams/heartbeat.py", ("T14", "KAFKA-19256"),
        "Who comes later, or lost an answer, never hears where tasks are.",
        "    if endpoint_epoch != request.endpoint_information_epoch:\n",
        "    if endpoint_epoch != decision.soft.endpoint_epoch:\n",
    ),
    _row(
        "moved-tasks-keep-their-endpoint", "groups/streams/heartbeat.py", ("T14",),
        "Tasks move, and who knew where they were is not told.",
        "    if old.user_endpoint != new.user_endpoint or (is_changed and new.user_endpoint is not None):\n",
        "    if old.user_endpoint != new.user_endpoint:\n",
    ),
    _row(
        "endpoints-of-who-was-before", "groups/streams/endpoints.py", ("T14",),
        "What was told of a member's endpoint is told again when its tasks are others.",
        "        if last is None or last[0] is not member or last[1] is not configured or last[2] is not topics:\n",
        "        if last is None or last[1] is not configured or last[2] is not topics:\n",
    ),
    _row(
        "shutdown-is-forgotten", "groups/streams/heartbeat.py", ("T16",),
        "A member asks for a shutdown, and nobody hears of it.",
        "    if decision.soft.shutdown is not None:\n        detail = (",
        "    if decision.soft.shutdown == member.member_id:\n        detail = (",
    ),
    _row(
        "shutdown-outlives-its-members", "groups/streams/leave.py", ("T16",),
        "An application that was shut down cannot be started again: its first member is told to go.",
        "        decision.remember(shutdown=None)\n",
        "",
    ),
    _row(
        "topics-are-asked-for-always", "groups/streams/heartbeat.py", ("T11",),
        "Internal topics are not asked for while they are missing.",
        "    if configured.missing:\n        effect",
        "    if not configured.missing:\n        effect",
    ),
    _row(
        "offsets-of-who-is-gone", "groups/streams/decision.py", ("T13", "G11"),
        "What a member reported of its tasks is kept when it is gone.",
        "        super().remove(member)\n        self.report(member.member_id, None)\n",
        "        super().remove(member)\n",
    ),
)  # fmt: skip

STATIC = (
    _row(
        "streams-instance-id-is-taken-over", "groups/modern/admit.py", ("M13",),
        "A second member with an instance id that is in use takes the place of the first one.",
        "    if holder.current.epoch != LEAVE_STATIC and holder.classic is None:\n        if holder.member_id",
        "    if holder.current.epoch < LEAVE_STATIC and holder.classic is None:\n        if holder.member_id",
    ),
    _row(
        "away-and-without-its-tasks", "groups/streams/leave.py", ("M13",),
        "What a static member has is not kept for it while it is away.",
        "assigned=replace(has, active=since), pending_revocation=NO_OWNED_TASKS",
        "assigned=NO_OWNED_TASKS, pending_revocation=NO_OWNED_TASKS",
    ),
    _row(
        "back-and-meant-to-have-nothing", "groups/modern/decision.py", ("M13",),
        "A static member that is back under another id is meant to have nothing.",
        "self.log.target_record(group_id, member_id, group.target_of(old.member_id))",
        "self.log.target_record(group_id, member_id, group.target_of(member_id))",
    ),
    _row(
        "fenced_member_epoch-streams-member-leaves-its-timers", "groups/streams/leave.py", ("G11",),
        "A member that is out leaves its timers.",
        "        decision.remove(member)\n        decision.disarm_all(member.member_id)\n",
        "        decision.remove(member)\n",
    ),
    _row(
        "revocation-of-tasks-has-no-end", "groups/modern/decision.py", ("L4",),
        "A member that never gives up what it has to is waited for for ever.",
        "                self.arm(key, member.rebalance_timeout_ms)\n",
        "                pass\n",
    ),
    _row(
        "silent-streams-member-after-a-restart", "groups/modern/decision.py", ("L4",),
        "After a restart nobody counts the time of a member that has to give something up.",
        "            if owes and member.current.epoch >= 0 and member.classic is None:\n",
        "            if owes and member.current.epoch < 0 and member.classic is None:\n",
    ),
    _row(
        "older-streams-commit-is-stale", "groups/modern/commits.py", ("O1", "KAFKA-20066"),
        "A commit that was on its way while the epoch moved is refused.",
        "    if epoch > member.current.epoch:\n",
        "    if member.classic is None:\n",
    ),
    _row(
        "classic-records-stay", "groups/streams/heartbeat.py", ("G8", "MG4", "KAFKA-20254"),
        "The record of the classic group that gave way stays in the log.",
        "        decision.replace_classic_group(known)\n",
        "",
    ),
)  # fmt: skip

PROGRESS, HIGHLY_AVAILABLE = (
    "groups/assignors/tasks/lags.py",
    "groups/assignors/highly_available/indexed_group.py",
)

WARMUPS = (
    _row(
        "unknown-end-has-caught-up", PROGRESS, ("T5",),
        "A copy counts as caught up where nobody told how long the changelog is.",
        "return None if offset is None or end is None else max(0, end - offset)\n",
        "return None if offset is None else max(0, (end or 0) - offset)\n",
    ),
    _row(
        "largest-report-counts", PROGRESS, ("T5",),
        "Of two members of a process the one that told more counts, also where that is long ago.",
        "by_task[task] = max(now, by_task.get(task, now))\n",
        "by_task[task] = max(now, by_task.get(task, now), key=lambda report: report[1])\n",
    ),
    _row(
        "disks-of-all-processes-are-one", PROGRESS, ("T5",),
        "What one process has restored counts for every other one.",
        "return self.offsets.get(process_id, {}).get(task)\n",
        "return max((some[task] for some in self.offsets.values() if task in some), default=None)\n",
    ),
    _row(
        "one-warm-up-too-many", HIGHLY_AVAILABLE, ("T4",),
        "One task more warms up than may at a time.",
        "        self.warmups = spec.configs.num_warmup_replicas\n",
        "        self.warmups = spec.configs.num_warmup_replicas and spec.configs.num_warmup_replicas + 1\n",
    ),
    _row(
        "promoted-although-behind", HIGHLY_AVAILABLE, ("T5",),
        "A task goes to who is behind by twice what is acceptable.",
        "return self.progress.has_caught_up(self.process_ids[process], self.task_ids[task], self.acceptable)\n",
        "return self.progress.has_caught_up(self.process_ids[process], self.task_ids[task], 2 * self.acceptable + 50)\n",
    ),
    _row(
        "caught-up-and-nothing-follows", "groups/streams/warmups.py", ("T5", "T13"),
        "A warm-up has caught up, and no epoch moves: it stands there for ever.",
        "    return bool(causes_found)\n",
        "    return False\n",
    ),
    _row(
        "epochs-move-while-it-warms-up", "groups/streams/warmups.py", ("T13", "L5"),
        "Each report of a warm-up moves the epoch, however far it is behind.",
        "            if progress.has_caught_up(holder.process_id, task, acceptable_lag):\n",
        "            if progress.lag(holder.process_id, task) is not None:\n",
    ),
    _row(
        "waited-for-in-vain", "groups/streams/warmups.py", ("T13", "L1"),
        "A member that turns out not to report keeps its warm-up for ever.",
        "    if not report.reports:\n        yield from",
        "    if report is None:\n        yield from",
    ),
    _row(
        "unheard-is-silent", "groups/streams/warmups.py", ("T13",),
        "After a restart of the coordinator nobody counts as one that reports, and tasks go over cold.",
        "NOT_YET_REPORTED = Reported(reports=True)\n",
        "NOT_YET_REPORTED = Reported(reports=False)\n",
    ),
    _row(
        "null-as-one-joins-is-a-report", "groups/streams/warmups.py", ("T13",),
        "A member that says nothing of offsets as it joins is waited for.",
        "        return can_report and request.task_offsets is not None\n",
        "        return can_report\n",
    ),
    _row(
        "first-ends-stay", "groups/streams/warmups.py", ("T5",),
        "What a member says later of the ends of changelogs is not taken.",
        "        last.end_offsets if ends is None else _offsets(ends),\n",
        "        last.end_offsets or _offsets(ends or ()),\n",
    ),
    _row(
        "reports-without-a-time", "groups/streams/warmups.py", ("T5",),
        "Of two members of a process that report nobody knows who did so later.",
        "        decision.context.now_ms,\n        reports,\n",
        "        before.reported_ms,\n        reports,\n",
    ),
)  # fmt: skip

ROLLS = (
    _row(
        "topology-two-epochs-on", "groups/streams/validate.py", ("T8",),
        "A topology is taken whose epoch is not the next one.",
        "    if sent.epoch == current.epoch + 1:\n",
        "    if sent.epoch > current.epoch:\n",
    ),
    _row(
        "another-topology-of-the-same-epoch", "groups/streams/validate.py", ("T8",),
        "A topology of the group's epoch takes its place although it is another one.",
        "    if sent.epoch == current.epoch + 1:\n",
        "    if sent.epoch - current.epoch in (0, 1):\n",
    ),
    _row(
        "next-topology-is-not-in-the-log", "groups/streams/heartbeat.py", ("T8", "G1"),
        "A group has its next topology until its coordinator is loaded anew.",
        "            decision.record(log.topology_record(group.group_id, record_value(request.topology)))\n",
        "            if group.topology is None:\n                decision.record(log.topology_record(group.group_id, record_value(request.topology)))\n",
    ),
    _row(
        "who-is-behind-gets-tasks-of-the-next", "groups/streams/targets.py", ("T9",),
        "A member with an older topology is given tasks like anybody else.",
        "    if not stale or decision.topology is None:\n        return targets\n",
        "    if stale or decision.topology is None:\n        return targets\n",
    ),
)  # fmt: skip

STREAMS = (*TASKS, *EPOCHS, *TARGETS, *RESPONSES, *STATIC, *WARMUPS, *ROLLS)
