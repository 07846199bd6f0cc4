"""Bugs in who is a member: ids, fencing, instance ids that come back, sessions, leaving, room."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import CLASSIC, GROUPS, OFFSETS, Mutant

IDS = (
    Mutant(
        "handed-out-ids-are-not-waited-for",
        CLASSIC + "group.py",
        ("L5",),
        "A rebalance completes without members that were just given their ids; each of them starts another.",
        "        return self.waiting == len(self.members) and not self.pending_joins\n",
        "        return self.waiting == len(self.members)\n",
    ),
    Mutant(
        "handed-out-id-has-no-timer",
        CLASSIC + "join.py",
        ("G11", "C4"),
        "A client that never comes back with its member id holds up every rebalance until its time is up.",
        "        decision.arm(session_key(group.group_id, member_id), request.session_timeout_ms)\n        decision.reply(context.waiter, rejected_join(Errors.MEMBER_ID_REQUIRED, member_id))\n",
        "        decision.reply(context.waiter, rejected_join(Errors.MEMBER_ID_REQUIRED, member_id))\n",
    ),
    Mutant(
        "handed-out-id-stays-after-the-join",
        CLASSIC + "group.py",
        ("G11", "C4"),
        "A member still counts as one to come, so that no rebalance completes before its time is up.",
        "            self.leader = member.member_id\n        self.pending_joins.discard(member.member_id)\n",
        "            self.leader = member.member_id\n",
    ),
    Mutant(
        "expired-id-leaves-the-rebalance-waiting",
        CLASSIC + "expiry.py",
        ("C4", "KAFKA-9752"),
        "The last one missing will not come, and the rebalance waits on until its time is up.",
        "        if known.state is State.PREPARING_REBALANCE and decision.group.all_joined:\n            decision.complete_join()\n",
        "",
    ),
    Mutant(
        "deleted-group-leaves-timers-of-ids",
        GROUPS + "shard.py",
        ("G11", "KAFKA-16663"),
        "DeleteGroups leaves the timers of the member ids that the group had handed out.",
        "        if group is not None and tombstones:\n            timers += group_type_of(group).running_timers(group)\n",
        "",
    ),
    Mutant(
        "id-given-back-leaves-its-timer",
        CLASSIC + "leave.py",
        ("G11", "KAFKA-16663"),
        "LeaveGroup with a member id that was only handed out leaves its timer.",
        "        group.drop(identity.member_id)\n        decision.disarm(session_key(group.group_id, identity.member_id))\n",
        "        group.drop(identity.member_id)\n",
    ),
    Mutant(
        "any-member-id-may-join",
        CLASSIC + "join.py",
        ("ST2",),
        "A member that was removed comes in under its old member id instead of being told UNKNOWN_MEMBER_ID.",
        "    if request.member_id in group.pending_joins:\n",
        "    if request.member_id not in group.members:\n",
    ),
)

FENCING = (
    Mutant(
        "old-holder-is-not-fenced_member_epoch",
        CLASSIC + "group.py",
        ("ST2",),
        "The older process of an instance id is told to join anew, and throws the newer one out.",
        "            if holder != member_id:\n                raise GroupError(Errors.FENCED_INSTANCE_ID)\n",
        "",
    ),
    Mutant(
        "removed-instance-is-fenced_member_epoch",
        CLASSIC + "group.py",
        ("ST8", "ST2"),
        "A static member whose session ended hears FENCED_INSTANCE_ID, and stops instead of joining anew.",
        "            if holder is None:\n                raise GroupError(Errors.UNKNOWN_MEMBER_ID)\n",
        "",
    ),
    Mutant(
        "heartbeat-does-not-fence",
        CLASSIC + "heartbeat.py",
        ("ST2",),
        "Heartbeats of the older process of an instance id are not answered FENCED_INSTANCE_ID.",
        "    member = group.check_member(request.member_id, request.group_instance_id)\n",
        "    member = group.check_member(request.member_id, None)\n",
    ),
    Mutant(
        "sync-does-not-fence",
        CLASSIC + "sync.py",
        ("ST2",),
        "SyncGroup of the older process of an instance id is not answered FENCED_INSTANCE_ID.",
        "    member = known.check_member(request.member_id, request.group_instance_id)\n",
        "    member = known.check_member(request.member_id, None)\n",
    ),
)

STATIC = (
    Mutant(
        "replaced-member-waits-for-its-join",
        CLASSIC + "join.py",
        ("G12", "ST1", "KAFKA-8500"),
        "A static member comes back while its older process waits in JoinGroup: that one is never answered.",
        "    decision.answer_join(old, rejected_join(fenced, old.member_id))\n",
        "",
    ),
    Mutant(
        "replaced-member-waits-for-its-sync",
        CLASSIC + "join.py",
        ("G12", "ST1"),
        "A static member comes back while its older process waits in SyncGroup: that one is never answered.",
        "    if old.sync_waiter is not None:\n        decision.reply(old.sync_waiter, SyncGroupResponse(error_code=fenced))\n",
        "",
    ),
    Mutant(
        "replacement-is-not-written-down",
        CLASSIC + "join.py",
        ("ST5", "G1", "KAFKA-10284"),
        "After a restart of the coordinator a static member that came back is fenced_member_epoch by its own older id.",
        "    decision.records.append(log.to_record(group))\n",
        "",
    ),
    Mutant(
        "replacement-loses-the-assignment",
        CLASSIC + "join.py",
        ("ST3", "C3", "KAFKA-9801"),
        "A static member comes back, keeps the generation, and is given no partitions.",
        "    new = replace(old, member_id=member_id, join_waiter=None, sync_waiter=None)\n",
        '    new = replace(old, member_id=member_id, assignment=b"", join_waiter=None, sync_waiter=None)\n',
    ),
    Mutant(
        "replacement-while-completing-is-left-waiting",
        CLASSIC + "join.py",
        ("G12", "L3", "KAFKA-9801"),
        "A static follower that comes back in CompletingRebalance starts no rebalance and is never answered.",
        "    if group.state is State.COMPLETING_REBALANCE:\n        decision.cause(causes.STATIC_MEMBER_REJOINS, new, request.reason)\n",
        "    if group.state is State.COMPLETING_REBALANCE and group.leader == member_id:\n        decision.cause(causes.STATIC_MEMBER_REJOINS, new, request.reason)\n",
    ),
    Mutant(
        "replaced-session-runs-on",
        CLASSIC + "join.py",
        ("G11", "KAFKA-16663"),
        "The timer of a member id that was replaced is left behind.",
        "    decision.disarm(session_key(group.group_id, old.member_id))\n",
        "",
    ),
    Mutant(
        "replacement-has-no-session",
        CLASSIC + "join.py",
        ("G11", "L4"),
        "A static member that comes back and dies before its first heartbeat is a member for ever.",
        "    decision.arm_session(new)\n",
        "",
    ),
    Mutant(
        "replacement-loses-the-lead",
        CLASSIC + "join.py",
        ("C1", "ST3"),
        "The leader comes back as a static member, and another, who never hears of it, leads the generation.",
        "    if was_leader:\n        group.leader = member_id\n",
        "",
    ),
    Mutant(
        "replacement-keeps-a-protocol-it-has-not",
        CLASSIC + "join.py",
        ("ST6",),
        "A static member comes back without the assignor in use, and no rebalance chooses another.",
        "    elif group.select_protocol() == group.protocol:\n",
        "    elif group.protocol in group.protocol_counts:\n",
    ),
    Mutant(
        "every-bounce-of-the-leader-rebalances",
        CLASSIC + "join.py",
        ("ST3",),
        "A static leader that comes back starts a rebalance, as before KIP-814.",
        "    elif group.select_protocol() == group.protocol:\n",
        "    elif group.select_protocol() == group.protocol and group.leader != member_id:\n",
    ),
    Mutant(
        "returning-leader-is-told-to-assign",
        CLASSIC + "join.py",
        ("ST3", "KAFKA-13435"),
        "A static leader that comes back is not told to skip the assignment, and computes one for nobody.",
        "        response = decision.joined_response(member, skip_assignment=was_leader)\n",
        "        response = decision.joined_response(member)\n",
    ),
    Mutant(
        "rejoin-keeps-the-old-rebalance-timeout",
        CLASSIC + "join.py",
        ("ST6", "KAFKA-14009"),
        "A member that comes back with another rebalance timeout is held to the one it had before.",
        "            rebalance_timeout_ms=rebalance_timeout_ms(request),\n",
        "",
    ),
    Mutant(
        "rejoin-keeps-the-old-session-timeout",
        CLASSIC + "join.py",
        ("ST6", "L4"),
        "A member that comes back with another session timeout is held to the one it had before.",
        "            session_timeout_ms=request.session_timeout_ms,\n",
        "",
    ),
    Mutant(
        "instance-outlives-its-member",
        CLASSIC + "group.py",
        ("ST1",),
        "An instance id still points at a member that is gone: the next JoinGroup with it cannot be decided.",
        "            del self.instances[member.instance_id]\n",
        "            pass\n",
    ),
)

SESSIONS = (
    Mutant(
        "heartbeat-in-a-rebalance-does-not-count",
        CLASSIC + "heartbeat.py",
        ("L4", "G11"),
        "A member that is told REBALANCE_IN_PROGRESS and revokes slowly loses its session all the same.",
        "        timers=(Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),),\n",
        "        timers=()\n"
        "        if response is _REJOIN\n"
        "        else (Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),),\n",
    ),
    Mutant(
        "commit-does-not-keep-the-session",
        OFFSETS + "commit.py",
        ("O1",),
        "A member that commits and sends no heartbeat meanwhile loses its session.",
        "    return (Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),)\n",
        "    return ()\n",
    ),
    Mutant(
        "synced-members-have-no-session",
        "groups/classic/decision.py",
        ("G11", "L4"),
        "A session that ran out while its member waited in SyncGroup is not begun again with the answer.",
        "                self.reply(waiter, self.assignment_response(member))\n"
        "                self.arm_session(member)\n",
        "                self.reply(waiter, self.assignment_response(member))\n",
    ),
    Mutant(
        "refused-syncs-have-no-session",
        "groups/classic/decision.py",
        ("G11", "L4"),
        "The same for members whose SyncGroup is cut off by the next rebalance.",
        "                self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))\n"
        "                self.arm_session(member)\n",
        "                self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))\n",
    ),
    Mutant(
        "joined-members-have-no-session",
        "groups/classic/decision.py",
        ("G11", "L4"),
        "A member that dies right after its JoinGroup was answered stays for five minutes, or for ever.",
        "            self.arm_session(answered)\n",
        "",
    ),
    Mutant(
        "new-member-has-only-its-session",
        CLASSIC + "join.py",
        ("C4", "KAFKA-9752"),
        "A new member cannot send heartbeats before its JoinGroup is answered; it is removed for that.",
        "    decision.arm(session_key(group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)\n",
        "    decision.arm(session_key(group.group_id, member_id), request.session_timeout_ms)\n",
    ),
    Mutant(
        "members-stay-new",
        "groups/classic/decision.py",
        ("G11",),
        "Members of a generation are taken for new ones, and removed while they wait for the next.",
        "                group.put(replace(answered, is_new=False))\n",
        "                group.put(answered)\n",
    ),
    Mutant(
        "session-ends-while-waiting-for-sync",
        CLASSIC + "expiry.py",
        ("L4",),
        "A member that waits for the leader's assignment cannot send heartbeats, and is removed for it.",
        "    is_pending = member.join_waiter is not None or member.sync_waiter is not None\n",
        "    is_pending = member.join_waiter is not None\n",
    ),
    Mutant(
        "session-is-as-long-as-a-rebalance",
        "groups/classic/decision.py",
        ("L4",),
        "A dead member keeps its partitions for its rebalance timeout instead of its session timeout.",
        "        self.arm(session_key(self.group.group_id, member.member_id), member.session_timeout_ms)\n",
        "        self.arm(session_key(self.group.group_id, member.member_id), member.rebalance_timeout_ms)\n",
    ),
    Mutant(
        "removed-session-runs-on",
        "groups/classic/decision.py",
        ("G11", "KAFKA-16663"),
        "The timer of a member that left is left behind.",
        "        self.disarm(session_key(self.group.group_id, member.member_id))\n",
        "",
    ),
    Mutant(
        "session-of-the-late-runs-on",
        "groups/classic/decision.py",
        ("G11", "KAFKA-16663"),
        "The timer of a member that did not rejoin in time is left behind.",
        "            self.disarm(session_key(group.group_id, member.member_id))\n",
        "",
    ),
)

ROOM = (
    Mutant(
        "one-member-too-many",
        CLASSIC + "join.py",
        ("C5",),
        "A group has one member more than group.max.size.",
        "        return member_id in group.members or len(group.members) < max_size\n",
        "        return member_id in group.members or len(group.members) <= max_size\n",
    ),
    Mutant(
        "members-always-find-room",
        CLASSIC + "join.py",
        ("C5", "KAFKA-9844"),
        "Somebody new takes a place in a rebalance, and the members who rejoin are all let in as well.",
        "        return (member is not None and member.join_waiter is not None) or group.waiting < max_size\n",
        "        return member is not None or group.waiting < max_size\n",
    ),
    Mutant(
        "refused-member-stays",
        CLASSIC + "join.py",
        ("G11", "C5"),
        "A member that is told GROUP_MAX_SIZE_REACHED stays a member, without a session.",
        "            group.drop(request.member_id)\n            decision.disarm(",
        "            decision.disarm(",
    ),
    Mutant(
        "smaller-limit-is-not-seen-at-load",
        CLASSIC + "expiry.py",
        ("C5",),
        "After a restart with a smaller group.max.size the group stays as large as it was.",
        "    decision.cause(cause, None)\n    decision.start_rebalance()\n",
        "    decision.cause(cause, None)\n",
    ),
)

LEAVING = (
    Mutant(
        "leaver-is-not-answered",
        "groups/classic/decision.py",
        ("G12",),
        "A member that is removed while it waits in JoinGroup is never answered.",
        "        self.answer_join(member, rejected_join(Errors.UNKNOWN_MEMBER_ID))\n",
        "",
    ),
    Mutant(
        "leaver-in-sync-is-not-answered",
        "groups/classic/decision.py",
        ("G12",),
        "A member that is removed while it waits in SyncGroup is never answered.",
        "        if member.sync_waiter is not None:\n"
        "            self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))\n",
        "",
    ),
    Mutant(
        "leave-while-completing-goes-unnoticed",
        CLASSIC + "leave.py",
        ("L3", "KAFKA-12890"),
        "The leader leaves while all wait for its assignment, and they wait on.",
        "    if decision.group.state in (State.STABLE, State.COMPLETING_REBALANCE):\n",
        "    if decision.group.state is State.STABLE:\n",
    ),
    Mutant(
        "one-stranger-spoils-a-removal",
        CLASSIC + "leave.py",
        ("ST7", "L3"),
        "Of several members to remove one is unknown: the others go, and nobody takes over their partitions.",
        "    if any(a.error_code == Errors.NONE for a in responses):\n",
        "    if all(a.error_code == Errors.NONE for a in responses):\n",
    ),
    Mutant(
        "leaver-is-gone-without-a-word",
        CLASSIC + "leave.py",
        (),
        "A rebalance after LeaveGroup has no cause to tell.",
        "    decision.cause(cause, member, reason)\n",
        "",
    ),
)

MEMBERSHIP = (*IDS, *FENCING, *STATIC, *SESSIONS, *ROOM, *LEAVING)
