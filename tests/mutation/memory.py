"""Bugs in what the log keeps of a group: what is written and when, and what a restart makes of it."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import CLASSIC, GROUPS, Mutant

WRITING = (
    Mutant(
        "stable-is-not-written-down",
        "groups/classic/decision.py",
        ("G1", "C3"),
        "After a restart of the coordinator the group is in an older generation than its members.",
        "        group.state = State.STABLE\n        self.records.append(log.to_record(group))\n",
        "        group.state = State.STABLE\n",
    ),
    Mutant(
        "stable-is-written-too-early",
        "groups/classic/decision.py",
        ("G1", "C3"),
        "The record of a stable group has its members without their assignments.",
        "        group = self.group\n"
        "        for member in list(group.members.values()):\n"
        '            assigned = assignments.get(member.member_id, b"")\n'
        "            waiter = member.sync_waiter\n"
        "            member = replace(member, assignment=assigned, sync_waiter=None)\n"
        "            group.put(member)\n"
        "            if waiter is not None:\n"
        "                self.reply(waiter, self.assignment_response(member))\n"
        "                self.arm_session(member)\n"
        "        group.state = State.STABLE\n"
        "        self.records.append(log.to_record(group))\n",
        "        group = self.group\n"
        "        self.records.append(log.to_record(group))\n"
        "        for member in list(group.members.values()):\n"
        '            assigned = assignments.get(member.member_id, b"")\n'
        "            waiter = member.sync_waiter\n"
        "            member = replace(member, assignment=assigned, sync_waiter=None)\n"
        "            group.put(member)\n"
        "            if waiter is not None:\n"
        "                self.reply(waiter, self.assignment_response(member))\n"
        "                self.arm_session(member)\n"
        "        group.state = State.STABLE\n",
    ),
    Mutant(
        "empty-is-not-written-down",
        "groups/classic/decision.py",
        ("G1",),
        "After a restart the members of an empty group are back, until their sessions end.",
        "            self.transition_to(State.EMPTY)\n            self.records.append(log.to_record(group))\n",
        "            self.transition_to(State.EMPTY)\n",
    ),
    Mutant(
        "empty-since-is-written-too-early",
        "groups/classic/decision.py",
        ("G1", "O5"),
        "The log says that the group was empty since its last rebalance began: its offsets expire too early.",
        "            self.transition_to(State.EMPTY)\n            self.records.append(log.to_record(group))\n",
        "            self.records.append(log.to_record(group))\n            self.transition_to(State.EMPTY)\n",
    ),
    Mutant(
        "first-join-is-not-written-down",
        CLASSIC + "join.py",
        ("G1",),
        "A group that nobody has joined yet but was heard of is gone after a restart.",
        "    if known is None and not decision.records:\n",
        "    if known is None and not decision.records and group.members:\n",
    ),
    Mutant(
        "favourite-metadata-is-written",
        CLASSIC + "log.py",
        ("G1",),
        "The log has each member's metadata for the assignor that it likes best, not for the one in use.",
        "            subscription=m.metadata(group.protocol),\n",
        "            subscription=m.protocols[0][1],\n",
    ),
    Mutant(
        "timeouts-are-written-crossed",
        CLASSIC + "log.py",
        ("G1", "L4"),
        "After a restart a member's session lasts as long as its rebalances may, and the other way round.",
        "            rebalance_timeout=m.rebalance_timeout_ms,\n"
        "            session_timeout=m.session_timeout_ms,\n",
        "            rebalance_timeout=m.session_timeout_ms,\n"
        "            session_timeout=m.rebalance_timeout_ms,\n",
    ),
)

LOADING = (
    Mutant(
        "a-restart-is-a-generation",
        CLASSIC + "log.py",
        ("G1", "C1"),
        "After a restart every member is told ILLEGAL_GENERATION.",
        "        value.generation,\n        protocol=",
        "        value.generation + 1,\n        protocol=",
    ),
    Mutant(
        "empty-since-is-forgotten",
        CLASSIC + "log.py",
        ("G1", "O5"),
        "After a restart nobody knows since when a group is empty: offsets expire by the age of the commit.",
        "        value.current_state_timestamp,\n",
        "        -1,\n",
    ),
    Mutant(
        "first-member-leads-after-a-restart",
        CLASSIC + "log.py",
        ("G1", "C1"),
        "After a restart another member leads the generation than the one that was told so.",
        "    group.leader = value.leader\n",
        "    group.leader = group.leader or value.leader\n",
    ),
    Mutant(
        "instances-are-forgotten",
        CLASSIC + "log.py",
        ("G1", "ST5"),
        "After a restart static members are dynamic ones, and their restart is a new member.",
        "            instance_id=m.group_instance_id,\n",
        "            instance_id=None,\n",
    ),
    Mutant(
        "rebalance-timeout-is-forgotten",
        CLASSIC + "log.py",
        ("G1",),
        "After a restart a member has its session timeout to rejoin.",
        "        rebalance_timeout_ms = m.rebalance_timeout if m.rebalance_timeout != -1 else m.session_timeout\n",
        "        rebalance_timeout_ms = m.session_timeout\n",
    ),
    Mutant(
        "assignments-are-forgotten",
        CLASSIC + "log.py",
        ("G1", "C3"),
        "After a restart a member that asks for its assignment is given none.",
        "            assignment=m.assignment,\n        )\n        group.put(member)\n",
        "        )\n        group.put(member)\n",
    ),
    Mutant(
        "empty-group-becomes-a-simple-one",
        CLASSIC + "log.py",
        ("G1", "O5"),
        "After a restart an empty group has no protocol type: its offsets expire by the age of the commit.",
        "    group.protocol_type = value.protocol_type or None\n",
        "",
    ),
    Mutant(
        "sessions-of-static-members-do-not-start",
        CLASSIC + "expiry.py",
        ("G11", "L4"),
        "After a restart a static member that is gone keeps its partitions for ever.",
        "    for member in group.members.values():\n        timers.append(",
        "    for member in group.members.values():\n"
        "        if member.instance_id is None:\n"
        "            timers.append(",
    ),
    Mutant(
        "retention-does-not-start",
        GROUPS + "shard.py",
        ("G11", "O5"),
        "After a restart no offset expires any more.",
        "        timers: list[Arm | Disarm] = [next_check(context), *share_partitions.cleanup_timer(groups)]\n",
        "        timers: list[Arm | Disarm] = [*share_partitions.cleanup_timer(groups)]\n",
    ),
    Mutant(
        "tombstone-of-nothing",
        GROUPS + "shard.py",
        ("G2", "G8", "KAFKA-17306"),
        "A compacted log begins with the tombstone of a group, and cannot be loaded.",
        "    elif isinstance(shard.groups.get(key.group), ClassicGroup):\n        del shard.groups[key.group]\n",
        "    else:\n        del shard.groups[key.group]\n",
    ),
    Mutant(
        "tombstone-makes-a-group",
        GROUPS + "shard.py",
        ("G1", "G8", "KAFKA-20254"),
        "The tombstone of an offset makes a group that is not there.",
        "    if record.committed is not None and record.group not in shard.groups:\n",
        "    if record.group not in shard.groups:\n",
    ),
    Mutant(
        "run-of-commits-takes-the-topic",
        "groups/offsets/committed.py",
        ("G2",),
        "Commits that are loaded at one stroke apply_soft_state the place of all that the group had of their topic.",
        "    groups.setdefault(group, {}).setdefault(topic, {}).update(committed)\n",
        "    groups.setdefault(group, {})[topic] = committed\n",
    ),
    Mutant(
        "run-of-commits-has-one-leader-epoch",
        "broker/groups/record_serde.py",
        ("G2", "Redpanda#17260"),
        "Of commits that are loaded at one stroke all have the first one's leader epoch.",
        "(offset, epoch, committed.metadata, time, -1, committed.topic_id))\n",
        "(offset, committed.leader_epoch, committed.metadata, time, -1, committed.topic_id))\n",
    ),
    Mutant(
        "run-of-commits-has-one-metadata",
        "broker/groups/record_serde.py",
        ("G2", "O2"),
        "Of commits that are loaded at one stroke all have the first one's metadata.",
        "            constant = (own_size, front, length, kind, text, tail)\n"
        "        elif (own_size, front, length, kind, text, tail) != constant:\n",
        "            constant = (own_size, front, length, kind, tail)\n"
        "        elif (own_size, front, length, kind, tail) != constant:\n",
    ),
)

DECIDING = (
    Mutant(
        "decides-on-the-group-itself",
        "groups/classic/decision.py",
        ("G5",),
        "A decision changes the group at once, also if the request is then refused or its append fails.",
        "        self.group = group.copy()\n",
        "        self.group = group\n",
    ),
    Mutant(
        "copy-shares-the-instances",
        CLASSIC + "group.py",
        ("G5", "KAFKA-18263"),
        "A static member's new id counts though the record of it could not be appended.",
        "            instances=dict(self.instances),\n",
        "",
    ),
    Mutant(
        "copy-shares-the-members",
        CLASSIC + "group.py",
        ("G5",),
        "Members come and go though the decision was not carried out.",
        "            members=dict(self.members),\n",
        "",
    ),
    Mutant(
        "copy-shares-the-handed-out-ids",
        CLASSIC + "group.py",
        ("G5",),
        "A member id counts as handed out though the append failed and its client never heard of it.",
        "            pending_joins=set(self.pending_joins),\n",
        "",
    ),
)

MEMORY = (*WRITING, *LOADING, *DECIDING)
