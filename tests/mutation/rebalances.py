"""Bugs in how a generation is made: who leads, who is waited for and how long, what is handed out."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import CLASSIC, Mutant

GENERATIONS = (
    Mutant(
        "empty-group-keeps-its-generation",
        "groups/classic/decision.py",
        ("C1",),
        "The last member goes, and the generation is still the one that it was in.",
        "        group.generation += 1\n",
        "        group.generation += bool(group.members)\n",
    ),
    Mutant(
        "sync-of-an-older-generation",
        CLASSIC + "sync.py",
        ("C2",),
        "A SyncGroup that was late by a rebalance is taken for one of this generation.",
        "    known.check_generation(request.generation_id)\n",
        "    known.check_generation(max(request.generation_id, known.generation))\n",
    ),
    Mutant(
        "heartbeat-of-an-older-generation",
        CLASSIC + "heartbeat.py",
        ("C2",),
        "A member that missed a rebalance hears that all is well, and reads partitions that others have.",
        "    group.check_generation(request.generation_id)\n",
        "    group.check_generation(max(request.generation_id, group.generation))\n",
    ),
    Mutant(
        "leader-is-not-heard-when-it-rejoins",
        CLASSIC + "join.py",
        ("L3",),
        "The leader saw its topics change and asks for a rebalance, which does not start.",
        "    elif changed or is_stable_leader:\n",
        "    elif changed:\n",
    ),
    Mutant(
        "every-rejoin-is-a-rebalance",
        CLASSIC + "join.py",
        ("L5",),
        "A follower whose answer was lost asks again, and the whole group rebalances.",
        "    is_stable_leader = group.state is State.STABLE and group.leader == member.member_id\n",
        "    is_stable_leader = group.state is State.STABLE\n",
    ),
    Mutant(
        "new-subscription-is-not-noticed",
        CLASSIC + "join.py",
        ("ST6",),
        "A member that rejoins with other topics, or having revoked some partitions, starts no rebalance.",
        "    changed = member.protocols != _protocols(request)\n",
        "    changed = [name for name, _ in member.protocols] != [p.name for p in request.protocols]\n",
    ),
    Mutant(
        "new-subscription-is-not-kept",
        CLASSIC + "join.py",
        ("ST6",),
        "A member rejoins with other topics, and the leader is shown those it had before.",
        "            protocols=_protocols(request),\n",
        "",
    ),
)

LEADERS = (
    Mutant(
        "absent-leader-leads",
        "groups/classic/decision.py",
        ("C1", "L3"),
        "A static leader that did not rejoin still leads: nobody computes the assignment.",
        "        if leader is not None and leader.join_waiter is not None:\n",
        "        if leader is not None:\n",
    ),
    Mutant(
        "leader-that-left-is-still-named",
        CLASSIC + "group.py",
        ("C1", "G11"),
        "The record of an empty group names a leader that is no member any more.",
        "        if self.leader == member_id:\n            self.leader = next(iter(self.members), None)\n",
        "",
    ),
    Mutant(
        "newest-member-leads",
        CLASSIC + "group.py",
        ("C1",),
        "Whoever joins is the leader, also of a generation whose leader rejoins.",
        "        if self.leader is None:\n            self.leader = member.member_id\n",
        "        if old is None:\n            self.leader = member.member_id\n",
    ),
)

WAITING = (
    Mutant(
        "shortest-timeout-rules",
        CLASSIC + "group.py",
        ("C4",),
        "A rebalance lasts as long as the most impatient member allows, and slow ones are thrown out.",
        "        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)\n",
        "        return min((m.rebalance_timeout_ms for m in self.members.values()), default=0)\n",
    ),
    Mutant(
        "late-static-members-are-out",
        "groups/classic/decision.py",
        ("ST4", "KAFKA-8220"),
        "A static member that does not rejoin in time is removed, though its session goes on.",
        "if m.join_waiter is None and m.instance_id is None]:\n",
        "if m.join_waiter is None]:\n",
    ),
    Mutant(
        "nobody-came-and-nobody-looks-again",
        "groups/classic/decision.py",
        ("C4", "L3", "G11"),
        "Only static members are left and none rejoined in time: the rebalance never ends.",
        "            self.arm(join_key(group.group_id), group.rebalance_timeout_ms)\n            return\n",
        "            return\n",
    ),
    Mutant(
        "expired-member-leaves-the-rebalance-waiting",
        "groups/classic/decision.py",
        ("C4", "KAFKA-9752"),
        "The last member missing is gone, all others are in, and the rebalance waits until its time is up.",
        "        elif self.group.state is State.PREPARING_REBALANCE and self.group.all_joined:\n"
        "            self.complete_join()\n",
        "",
    ),
    Mutant(
        "join-timer-runs-on",
        "groups/classic/decision.py",
        ("G11", "KAFKA-16663"),
        "The timer of a rebalance that completed is left behind, and may cut the next one short.",
        "        self.disarm(join_key(group.group_id))\n",
        "",
    ),
    Mutant(
        "join-timer-forgotten",
        "groups/classic/decision.py",
        ("C4", "G11"),
        "A rebalance waits for ever for a member that keeps up its heartbeats and does not rejoin.",
        "        else:\n            self.arm(join_key(group.group_id), group.rebalance_timeout_ms)\n",
        "",
    ),
    Mutant(
        "first-rebalance-does-not-wait",
        "groups/classic/decision.py",
        ("L5",),
        "group.initial.rebalance.delay.ms counts for nothing: members that start together come one by one.",
        "        if group.state is State.PREPARING_REBALANCE and not group.was_empty and group.all_joined:\n",
        "        if group.state is State.PREPARING_REBALANCE and group.all_joined:\n",
    ),
    Mutant(
        "first-rebalance-waits-to-the-end",
        CLASSIC + "expiry.py",
        ("C4", "L3"),
        "A new group waits for its longest rebalance timeout though nobody comes any more.",
        "        group.member_added = False\n",
        "",
    ),
    Mutant(
        "rejoining-member-is-not-counted",
        "groups/classic/decision.py",
        ("C4", "L3"),
        "All members have rejoined, and the generation is made only when the time is up.",
        "            self.start_rebalance()\n        else:\n            self.maybe_complete_join()\n",
        "            self.start_rebalance()\n",
    ),
    Mutant(
        "waiting-is-counted-twice",
        CLASSIC + "group.py",
        ("G11", "KAFKA-15981"),
        "A group counts wrong who waits and which assignors its members have, more so with each rebalance.",
        "        if old is not None:\n            self._count(old, -1)\n",
        "",
    ),
)

PROTOCOLS = (
    Mutant(
        "one-friend-is-enough",
        CLASSIC + "group.py",
        ("C1",),
        "A member is let in whose assignors only some others have: there is none to choose.",
        "            self.protocol_counts.get(name, 0) == size for name in names\n",
        "            self.protocol_counts.get(name, 0) > 0 for name in names\n",
    ),
    Mutant(
        "any-protocol-type-is-let-in",
        CLASSIC + "group.py",
        ("C1",),
        "A Connect worker joins a group of consumers because both have an assignor of one name.",
        "        return self.protocol_type == protocol_type and any(\n",
        "        return any(\n",
    ),
    Mutant(
        "candidates-of-some",
        CLASSIC + "group.py",
        ("C1",),
        "An assignor is chosen that not all members have.",
        "        candidates = frozenset(name for name, n in self.protocol_counts.items() if n == size)\n",
        "        candidates = frozenset(name for name, n in self.protocol_counts.items() if 2 * n >= size)\n",
    ),
)

SYNCING = (
    Mutant(
        "nobody-is-waited-for-in-sync",
        "groups/classic/decision.py",
        ("C4", "KAFKA-12890"),
        "A leader that keeps up its heartbeats and never hands in the assignment blocks its group for ever.",
        "        group.pending_syncs.update(group.members)\n",
        "",
    ),
    Mutant(
        "sync-timer-forgotten",
        "groups/classic/decision.py",
        ("C4", "G11", "KAFKA-12890"),
        "As above: no timer watches over CompletingRebalance.",
        "        self.arm(sync_key(group.group_id), group.rebalance_timeout_ms)\n",
        "",
    ),
    Mutant(
        "missing-syncs-of-a-stable-group",
        CLASSIC + "expiry.py",
        ("C4",),
        "A member that never asks for its assignment keeps partitions that nobody reads.",
        "    if known.state not in (State.COMPLETING_REBALANCE, State.STABLE):\n",
        "    if known.state is not State.COMPLETING_REBALANCE:\n",
    ),
    Mutant(
        "sync-timer-runs-on",
        "groups/classic/decision.py",
        ("G11", "KAFKA-16663"),
        "All have their assignment, and the timer that watched over it is left behind.",
        "        self.group.pending_syncs.discard(member_id)\n"
        "        if not self.group.pending_syncs:\n"
        "            self.disarm(sync_key(self.group.group_id))\n",
        "        self.group.pending_syncs.discard(member_id)\n",
    ),
    Mutant(
        "who-synced-is-still-waited-for",
        "groups/classic/decision.py",
        ("C4", "G11"),
        "Members that asked for their assignment are removed for not having asked.",
        "        self.group.pending_syncs.discard(member_id)\n        if not self.group",
        "        if not self.group",
    ),
    Mutant(
        "one-missing-sync-costs-all",
        CLASSIC + "expiry.py",
        ("C4", "L3"),
        "One member does not ask for its assignment, and all are removed.",
        "    for member_id in sorted(known.pending_syncs):\n",
        "    for member_id in sorted(known.members):\n",
    ),
    Mutant(
        "forgotten-member-keeps-what-it-had",
        "groups/classic/decision.py",
        ("C3",),
        "A member that the leader gives nothing keeps the partitions that it had, beside their new owner.",
        '            assigned = assignments.get(member.member_id, b"")\n',
        "            assigned = assignments.get(member.member_id, member.assignment)\n",
    ),
    Mutant(
        "followers-assign",
        CLASSIC + "sync.py",
        ("C3",),
        "A follower hands in assignments, and they count.",
        "    if member.member_id == known.leader:\n",
        "    if member.member_id == known.leader or request.assignments:\n",
    ),
    Mutant(
        "assignment-is-answered-twice",
        "groups/classic/decision.py",
        ("G12",),
        "A SyncGroup that was answered is kept as one to be answered, and is, by the next rebalance.",
        "            member = replace(member, assignment=assigned, sync_waiter=None)\n",
        "            member = replace(member, assignment=assigned)\n",
    ),
    Mutant(
        "assignment-of-the-first-only",
        "groups/classic/decision.py",
        ("G12", "L3"),
        "Members whose SyncGroup came before the leader's are not answered when it comes.",
        "            if waiter is not None:\n                self.reply(waiter, self.assignment_response(member))\n",
        "            if waiter is not None and member.member_id == group.leader:\n"
        "                self.reply(waiter, self.assignment_response(member))\n",
    ),
    Mutant(
        "second-sync-leaves-the-first-open",
        CLASSIC + "sync.py",
        ("G12",),
        "A member asks for its assignment again on another connection; the first request hangs.",
        "        decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))\n",
        "        pass\n",
    ),
    Mutant(
        "second-join-leaves-the-first-open",
        CLASSIC + "join.py",
        ("G12",),
        "A member asks to join again on another connection; the first request hangs.",
        "        decision.reply(member.join_waiter, rejected_join(Errors.REBALANCE_IN_PROGRESS, member.member_id))\n",
        "        pass\n",
    ),
    Mutant(
        "join-leaves-the-sync-open",
        CLASSIC + "join.py",
        ("G12",),
        "A member that waits in SyncGroup joins anew on another connection; its SyncGroup hangs.",
        "    if member.sync_waiter is not None:\n        decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))\n",
        "",
    ),
    Mutant(
        "cut-off-syncs-are-not-answered",
        "groups/classic/decision.py",
        ("G12",),
        "A rebalance begins while members wait in SyncGroup, and they are never answered.",
        "            self._reset_assignments()\n",
        "            pass\n",
    ),
    Mutant(
        "everybody-hears-of-everybody",
        "groups/classic/decision.py",
        ("C1",),
        "Followers are given the list of members as only the leader is.",
        "            members=self._member_metadata() if leads else (),\n",
        "            members=self._member_metadata(),\n",
    ),
)

STORIES = (
    Mutant(
        "expired-without-a-word",
        CLASSIC + "expiry.py",
        (),
        "A rebalance after a session that ended has no cause to tell.",
        "    decision.cause(causes.SESSION_EXPIRED, member)\n",
        "",
    ),
    Mutant(
        "stories-pile-up",
        "groups/classic/decision.py",
        (),
        "A rebalance is told with the causes of all those before it.",
        "        group.trace = None\n",
        "",
    ),
    Mutant(
        "last-one-out-is-not-told",
        "groups/classic/decision.py",
        (),
        "The generation in which a group became empty is missing in its history.",
        "            self.audit_generation(State.EMPTY)\n",
        "",
    ),
)

REBALANCES = (*GENERATIONS, *LEADERS, *WAITING, *PROTOCOLS, *SYNCING, *STORIES)
