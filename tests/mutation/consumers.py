"""Bugs in consumer groups: epochs, revocations, targets, static members, and moves between the protocols."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import CONSUMER, Mutant


def _row(
    name: str, file: str, ids: tuple[str, ...], breaks: str, old: str, new: str, instead: str = ""
) -> Mutant:
    path = file if "/" in file else CONSUMER + file
    return Mutant(name, path, ids, breaks, old, new, level=3, would_be_caught_by=instead)


STEPS = (
    _row(
        "granted-while-somebody-has-it", "groups/consumer/current_assignment.py", ("M1", "KAFKA-16147"),
        "A partition is given to a member before the one that has it has given it up.",
        "        return is_own or target.owner_epoch(topic, partition) == NO_OWNER\n",
        "        return True\n",
    ),
    _row(
        "keep-alive-confirms-a-revocation", "groups/consumer/current_assignment.py", ("M6", "kfake-ac7d0fb8"),
        "A heartbeat that does not say what its member owns counts as if it owned nothing.",
        "    if owned is None:\n        return True\n    return any(",
        "    if owned is None:\n        return False\n    return any(",
    ),
    _row(
        "any-report-confirms-a-revocation", "groups/consumer/current_assignment.py", ("M6",),
        "A heartbeat that still names what was to be given up confirms it.",
        "            if _holds_any(owned, current.pending_revocation):\n",
        "            if owned is None:\n",
    ),
    _row(
        "what-waits-is-never-given", "groups/consumer/current_assignment.py", ("L1", "kfake-007d8635"),
        "A member that waits for a partition does not get it when it is free.",
        "        case MemberState.UNRELEASED_PARTITIONS:\n            return _reconciled(current, target, owned, current.epoch)\n",
        "        case MemberState.UNRELEASED_PARTITIONS:\n            return current\n",
    ),
    _row(
        "revocation-time-begins-anew", "targets.py", ("M5", "KAFKA-16249"),
        "Each heartbeat gives a member that owes a revocation all of its time again.",
        "    if current == member.current:\n        return member\n",
        "    if current == member.current and current.state.value != 1:\n        return member\n",
    ),
    _row(
        "revocation-has-no-end", "groups/modern/decision.py", ("L4",),
        "A member that never gives up what it has to is waited for for ever.",
        "                self.arm(key, member.rebalance_timeout_ms)\n",
        "                self.timers.append(Disarm(key))\n",
    ),
    _row(
        "owner-is-forgotten-by-another", "group.py", ("M4", "KAFKA-19862"),
        "A member that lets go of a partition takes it from whoever has it by now.",
        "                if held.get(partition) == member_id:\n",
        "                if partition in held:\n",
    ),
    _row(
        "epochs-rise-by-two", "groups/consumer/decision.py", ("M12",),
        "One change moves the group's epoch twice.",
        "        self.epoch += 1\n",
        "        self.epoch += 2\n",
    ),
)  # fmt: skip

HEARTBEATS = (
    _row(
        "full-heartbeat-is-told-nothing", "heartbeat.py", ("M10", "KAFKA-16367"),
        "A member that lost an answer says everything, and is not told what it is to have.",
        "    if request.member_epoch == JOIN or is_full or new.current.assigned",
        "    if request.member_epoch == JOIN or new.current.assigned",
    ),
    _row(
        "fenced_member_epoch-member-cannot-come-back", "heartbeat.py", ("M10", "KAFKA-19233"),
        "A member that the group still knows is fenced_member_epoch when it joins again with epoch 0.",
        "    if epoch in (JOIN, current.epoch):\n",
        "    if epoch == current.epoch:\n",
    ),
    _row(
        "epoch-ahead-is-accepted", "heartbeat.py", ("M10",),
        "A member may be at an epoch that the coordinator has not reached, as after a lost log.",
        "    if epoch in (JOIN, current.epoch):\n",
        "    if epoch == JOIN or epoch >= current.epoch:\n",
    ),
    _row(
        "previous-epoch-owns-anything", "heartbeat.py", ("M10",),
        "A member at its last epoch is accepted although it owns what it does not have any more.",
        "    if epoch == current.previous_epoch < current.epoch and _is_subset(owned, current.assigned):\n",
        "    if epoch == current.previous_epoch < current.epoch:\n",
    ),
    _row(
        "joins-with-partitions", "heartbeat.py", ("M11", "kfake-0013f780"),
        "A member may join with partitions that it says it owns.",
        "        if request.topic_partitions is None or request.topic_partitions:\n",
        "        if request.topic_partitions is None:\n",
    ),
    _row(
        "heartbeat-keeps-nobody", "heartbeat.py", ("L4",),
        "A heartbeat does not begin the member's session anew: it is thrown out while it is there.",
        "    decision.arm_session(settled)\n    decision.reply(context.waiter, _response(",
        "    decision.reply(context.waiter, _response(",
    ),
    _row(
        "older-commit-is-stale", "groups/modern/commits.py", ("O1", "KAFKA-20066"),
        "A commit that was on its way while the epoch moved is refused.",
        "    if epoch > member.current.epoch:\n",
        "    if epoch != member.current.epoch:\n",
    ),
    _row(
        "older-commit-for-anything", "groups/modern/commits.py", ("O1",),
        "A commit with an old epoch is taken for a partition that the member did not have by then.",
        "    if since is None or epoch < since:\n",
        "    if since is None:\n",
    ),
    _row(
        "silent-after-a-restart", "groups/modern/decision.py", ("L4",),
        "After a restart nobody counts the time of a member that has to give something up.",
        "            if owes and member.current.epoch >= 0",
        "            if not owes and member.current.epoch < -9",
    ),
    _row(
        "fenced_member_epoch-member-leaves-its-timers", "leave.py", ("G11",),
        "A member that is out leaves its timers.",
        "        decision.remove(member)\n        decision.disarm_all(member.member_id)\n",
        "        decision.remove(member)\n",
    ),
)  # fmt: skip

TARGETS = (
    _row(
        "emptied-group-is-assigning", "leave.py", ("M9", "KAFKA-20442"),
        "When the last member is gone the group's epoch is ahead of its assignment's for ever.",
        "    if len(members) == len(group.members):\n        decision.assign",
        "    if len(members) < 0:\n        decision.assign",
    ),
    _row(
        "changed-topics-are-not-seen", "subscriptions.py", ("M12",),
        "Partitions that were added are nobody's until a member comes or goes.",
        "    changed = found != decision.metadata_hash\n    if not bump",
        "    changed = False\n    if not bump",
    ),
    _row(
        "smaller-target-is-not-written", "groups/modern/decision.py", ("M8", "KAFKA-12984"),
        "A member that is to have less keeps its target: two are meant to have the same partition.",
        "        if old is not None and (new is old or new == old):\n",
        "        if old is not None and len(new) <= len(old):\n",
    ),
    _row(
        "target-of-who-was-replaced", "targets.py", ("M8",),
        "A target comes that was computed while a static member came back: its new id is given nothing.",
        " or not assignment.keys() <= group.members.keys():",
        ":",
    ),
    _row(
        "no-second-target", "targets.py", ("L1",),
        "After its first target a group gets no other.",
        "    return last_ms == 0 or not is_early\n",
        "    return last_ms == 0\n",
    ),
    _row(
        "expressions-are-looked-at-once", "subscriptions.py", ("L1", "M12"),
        "After its first one a group's expressions are never resolved again.",
        "    decision.remember(resolving=False)\n",
        "",
    ),
    _row(
        "expressions-see-everything", "broker/groups/background_work.py", ("M15", "KAFKA-19147"),
        "An expression matches topics that may not be describe_topology.",
        "        if authorizer is not None:\n",
        "        if authorizer is None:\n",
    ),
    _row(
        "expression-of-nobody-is-kept", "leave.py", ("M15",),
        "What an expression matches is kept when the last one who used it is gone.",
        "        if group.regex_users[expression] == counts[expression]:\n",
        "        if group.regex_users[expression] < counts[expression]:\n",
    ),
)  # fmt: skip

STATIC = (
    _row(
        "instance-id-is-taken-over", "groups/modern/admit.py", ("M13",),
        "A second member with an instance id that is in use takes the place of the first one.",
        "    if holder.current.epoch != LEAVE_STATIC and holder.classic is None:\n",
        "    if holder.current.epoch < LEAVE_STATIC:\n",
    ),
    _row(
        "lost-join-locks-out", "groups/modern/admit.py", ("M13", "KAFKA-PR-23542"),
        "A static member whose answer was lost is refused under its own id until its session is over.",
        "        if holder.member_id == member_id and may_resume:\n            return holder, None\n",
        "",
    ),
    _row(
        "static-leave-without-a-name", "heartbeat.py", ("M13", "KAFKA-16152"),
        "A member without an instance id leaves for a while, and is taken out.",
        "    elif epoch == LEAVE_STATIC and request.instance_id is None:\n        raise _invalid(\"InstanceId can't be null.\")\n",
        "",
    ),
    _row(
        "away-gives-all-away", "leave.py", ("M13",),
        "What a static member has is not kept for it while it is away.",
        "    return replace(current, epoch=LEAVE_STATIC, assigned=assigned, pending_revocation={})\n",
        "    return replace(current, epoch=LEAVE_STATIC, assigned={}, pending_revocation={})\n",
    ),
    _row(
        "back-without-a-target", "groups/modern/decision.py", ("M13", "M8"),
        "A static member that is back under another id is meant to have nothing.",
        "group.target_of(old.member_id)",
        "group.target_of(\"\")",
    ),
    _row(
        "classic-self-cannot-be-replaced", "groups/modern/admit.py", ("M13", "MG1", "KAFKA-17228"),
        "A static member of the classic protocol cannot come back with the new one.",
        "    if holder.current.epoch != LEAVE_STATIC and holder.classic is None:\n",
        "    if holder.current.epoch != LEAVE_STATIC:\n",
    ),
)  # fmt: skip

MIGRATION = (
    Mutant(
        "downgrade-above-the-limit", "groups/modern/conversion.py", ("MG5", "KAFKA-16861"),
        "A group becomes a classic one that is larger than classic groups may be.",
        " and remaining + replaced <= max_size\n",
        "\n",
        level=3,
    ),
    _row(
        "last-one-leaves-and-nothing-happens", "leave.py", ("MG4",),
        "The last member of the new protocol leaves, and the group does not become a classic one.",
        "    if conversion.may_downgrade(group, members, decision.context):\n",
        "    if not members:\n",
    ),
    _row(
        "last-one-is-replaced-and-nothing-happens", "groups/consumer/classic_members.py", ("MG4", "KAFKA-17317"),
        "The last member of the new protocol is back with the classic one, and the group stays what it was.",
        "    downgrade = holder is not None and conversion",
        "    downgrade = holder is not None and request.group_id == \"\" and conversion",
    ),
    _row(
        "downgrade-leaves-records", "groups/consumer/conversion.py", ("MG4", "KAFKA-21117"),
        "The records of the consumer group stay in the log when it has become a classic one.",
        "    decision.records += log.group_tombstones(group, replaced)\n",
        "",
    ),
    Mutant(
        "upgrade-tells-nobody", "groups/modern/conversion.py", ("G12", "MG1"),
        "Members that wait for a join when the group is upgraded wait for ever.",
        "            decision.reply(member.join_waiter, rejected_join(error, member.member_id))\n",
        "            continue\n",
        level=3,
    ),
    _row(
        "classic-member-is-not-told-to-revoke", "groups/consumer/classic_members.py", ("MG2",),
        "A classic member that has to give something up is not told to rejoin.",
        "        or current.state is MemberState.UNREVOKED_PARTITIONS\n",
        "",
        "ClassicMembersRejoinOnChanges, in a conversation (tests/sim/invariants/test_consumer.py): in the moment between a "
        "change of its subscription and the next target it has to be heard, and seeds do not come there.",
    ),
    _row(
        "classic-members-alone-are-forgotten", "groups/consumer/classic_members.py", ("MG2", "L1"),
        "Classic members who are left alone where nobody may downgrade never hear of the new epoch.",
        "(decision.epoch if _has_only_classic_members(group) else group.assignment_epoch)",
        "group.assignment_epoch",
    ),
    _row(
        "expression-of-the-former-self", "groups/consumer/classic_members.py", ("MG1", "KAFKA-19720"),
        "A static member that is back with the classic protocol still reads by its expression.",
        "        subscription.topics,\n        \"\",\n        old.assignor,\n",
        "        subscription.topics,\n        old.regex,\n        old.assignor,\n",
    ),
)  # fmt: skip

CONSUMERS = (*STEPS, *HEARTBEATS, *TARGETS, *STATIC, *MIGRATION)
