"""Bugs in how Kafka Streams changes between the classic and the streams protocol while it runs.

Stories of the change show them, the example of KIP-1071 among these.
"""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import Mutant


def _row(name: str, file: str, breaks: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, ("MG1",), breaks, old, new, level=4)


STREAMS_MIGRATION = (
    _row(
        "streams-upgrade-begins-anew", "groups/streams/classic/conversion.py",
        "The epoch does not start at the generation, and members of the classic protocol are ahead of it.",
        "    return max(classic.generation, FIRST_EPOCH)\n",
        "    return FIRST_EPOCH\n",
    ),
    _row(
        "streams-upgrade-forgets-standbys", "groups/streams/classic/conversion.py",
        "Copies that members have are nobody's, and what is told is not what runs.",
        "            OwnedTasks(_at_epoch(active, epoch), _tasks(standby)),\n",
        "            OwnedTasks(_at_epoch(active, epoch)),\n",
    ),
    _row(
        "streams-upgrade-forgets-actives", "groups/streams/classic/conversion.py",
        "Tasks that members run are free for others.",
        "            OwnedTasks(_at_epoch(active, epoch), _tasks(standby)),\n",
        "            OwnedTasks({}, _tasks(standby)),\n",
    ),
    _row(
        "streams-upgrade-keeps-the-classic-group", "groups/streams/classic/conversion.py",
        "The classic group's record stays in the log.",
        "    records = [classic_log.tombstone(classic.group_id), *_records(classic, [m for m, _ in members])]\n",
        "    records = [*_records(classic, [m for m, _ in members])] * 2\n",
    ),
    _row(
        "unspoken-leader-stops-all", "groups/streams/classic/conversion.py",
        "Members whose leader has not spoken stop all that they run.",
        "            active |= revoking.pop()\n            revoking.append(set())\n",
        "            pass\n",
    ),
    _row(
        "classic-generation-is-not-the-epoch", "groups/streams/classic/members.py",
        "A classic member is told the epoch before its own, and is fenced_member_epoch by its next request.",
        "        generation_id=generation,\n",
        "        generation_id=generation - 1,\n",
    ),
    _row(
        "classic-member-leads-itself", "groups/streams/classic/members.py",
        "A member hears another protocol than the one that it speaks.",
        "        protocol_name=STREAM,\n",
        "        protocol_name=CONSUMER,\n",
    ),
    _row(
        "sync-gives-what-was-free-at-the-join", "groups/streams/classic/members.py",
        "What was given up between a join and its sync is not handed out.",
        "    if state is MemberState.UNRELEASED_TASKS:\n        settled = maybe_reconcile(",
        "    if state is MemberState.UNRELEASED_TASKS and False:\n        settled = maybe_reconcile(",
    ),
    _row(
        "classic-joins-own-nothing", "groups/streams/classic/members.py",
        "What a member owns as it joins is not looked at, and goes to others while it runs.",
        "        settled = maybe_reconcile(decision, new, target, owned_tasks(metadata.subscription.owned, topology))\n",
        "        settled = maybe_reconcile(decision, new, target, owned_tasks((), topology))\n",
    ),
    _row(
        "who-is-to-revoke-is-not-told-what", "groups/streams/classic/members.py",
        "A member that has to revoke is sent back to join before it hears what to revoke.",
        "    is_behind = group.assignment_epoch > member.current.epoch and state is not MemberState.UNREVOKED_TASKS\n",
        "    is_behind = group.assignment_epoch > member.current.epoch\n",
    ),
    _row(
        "classic-members-hear-of-no-shutdown", "groups/streams/classic/members.py",
        "A shutdown that a member of the streams protocol asks for is not heard of by the others.",
        "    if group.soft.shutdown is not None or current.state is MemberState.UNREVOKED_TASKS:\n",
        "    if current.state is MemberState.UNREVOKED_TASKS:\n",
    ),
    _row(
        "new-targets-are-not-told", "groups/streams/classic/members.py",
        "A classic member does not hear that there is a new target.",
        "    if current.epoch < (group.epoch if only_classic else group.assignment_epoch):\n        return True\n",
        "",
    ),
    _row(
        "alone-they-do-not-see-topics", "groups/streams/classic/members.py",
        "Where classic members are alone, new partitions are nobody's.",
        "    if only_classic and (topics_changed or _configs_changed(decision)):\n        return True\n",
        "",
    ),
    _row(
        "all-probe", "groups/streams/classic/members.py",
        "All members that warm something up are told to join at the same time.",
        "        other.member_id < member.member_id and _is_probing(decision, other) for other in others\n",
        "        False for other in others\n",
    ),
    _row(
        "nobody-tells-how-far-it-is", "groups/streams/classic/members.py",
        "Members that warm up are never asked how far they are.",
        "    return report is None or not 0 <= decision.context.now_ms - report.reported_ms < interval_ms\n",
        "    return False\n",
    ),
    _row(
        "remembered-while-behind", "groups/streams/classic/members.py",
        "A heartbeat is answered unread where a new target is to come.",
        "    if not is_settled or group.classic_members == len(group.members):\n",
        "    if group.classic_members == len(group.members):\n",
    ),
    _row(
        "remembered-while-alone", "groups/streams/classic/members.py",
        "A heartbeat is answered unread where nobody else sees that topics have changed.",
        "    if not is_settled or group.classic_members == len(group.members):\n",
        "    if not is_settled:\n",
    ),
    _row(
        "remembered-for-another-generation", "groups/streams/classic/members.py",
        "A heartbeat of a generation that is over is answered unread.",
        "    if member is None or member.classic is None or request.generation_id != member.current.epoch:\n",
        "    if member is None or member.classic is None:\n",
    ),
    _row(
        "missing-topics-are-not-made", "groups/streams/classic/members.py",
        "Where classic members are alone nobody has a deleted changelog made again.",
        "    if configured is not None and configured.missing:\n",
        "    if configured is None:\n",
    ),
    _row(
        "ends-are-not-looked-up", "groups/streams/classic/members.py",
        "Where changelogs end is not asked, and no warm-up of a classic member comes to an end.",
        "    look_up_ends(decision, member_id, configured)\n",
        "",
    ),
    _row(
        "syncs-before-topics-are-known", "groups/streams/classic/members.py",
        "A coordinator that has just begun tells tasks whose partitions it does not know.",
        "    if is_behind or configured is None or not configured.is_resolved:\n",
        "    if is_behind:\n",
    ),
)  # fmt: skip
