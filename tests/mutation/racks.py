"""Bugs in the placement of task copies by tags and racks, and in its warnings.

Tests of the assignors and of racks in the core detect them; random runs of the core do not check tags.
"""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import Mutant

FOLDER = "groups/assignors/"


def _row(name: str, file: str, ids: tuple[str, ...], breaks: str, old: str, new: str) -> Mutant:
    return Mutant(name, file if "/" in file else FOLDER + file, ids, breaks, old, new, level=4)


PLACES = (
    _row(
        "tags-not-said-are-the-same", "groups/assignors/tasks/racks.py", (),
        "Two members that do not say a tag clash on it.",
        "if this is not None and this == that)\n",
        "if this == that)\n",
    ),
    _row(
        "one-shared-tag-is-as-bad-as-all", "groups/assignors/tasks/racks.py", (),
        "A member that shares one tag of two is no better than one that shares both.",
        "        return taken.bit_count()\n",
        "        return min(1, taken.bit_count())\n",
    ),
    _row(
        "shared-tags-count-for-each-copy", "groups/assignors/tasks/racks.py", (),
        "A zone with two copies already counts twice, and a third copy goes where it shares more tags.",
        "            taken |= self._common(one, other) if found is None else found\n        return taken.bit_count()\n",
        "            taken += (self._common(one, other) if found is None else found).bit_count()\n        return taken\n",
    ),
    _row(
        "who-says-nothing-is-apart", "groups/assignors/tasks/racks.py", (),
        "A member that does not say its tags is preferred to those that do, for it clashes with nobody.",
        " + self._values[mine].count(None)\n",
        "\n",
    ),
    _row(
        "unsaid-tags-are-worse-than-shared-ones", "groups/assignors/tasks/racks.py", (),
        "A member that does not say a tag comes behind one that is in the very same zone.",
        "shared * (len(self._tags) + 1) + self._values[mine].count(None)",
        "shared + self._values[mine].count(None) * (len(self._tags) + 1)",
    ),
    _row(
        "no-rack-is-a-far-rack", "groups/assignors/tasks/racks.py", (),
        "A member that does not say its rack is outside the racks of every task.",
        "        return rack is None or task[1] >= len(racks) or",
        "        return task[1] >= len(racks) or",
    ),
    _row(
        "in-no-rack-at-all", "groups/assignors/tasks/racks.py", (),
        "Where no rack has all that a task reads, everybody is outside.",
        " or not racks[task[1]] or rack in racks[task[1]]\n",
        " or rack in racks[task[1]]\n",
    ),
    _row(
        "racks-of-members-are-enough", "groups/assignors/tasks/racks.py", (),
        "Racks are looked at where nobody knows where partitions are.",
        "not tags and not (self._racks and self._tasks)\n",
        "not tags and not self._racks\n",
    ),
    _row(
        "unknown-tags-are-told-as-apart", "groups/assignors/tasks/racks.py", (),
        "A task counts as apart although one of its members does not say where it is.",
        "        apart += not any(shared) and all(map(racks.has_all_tags, holders))\n",
        "        apart += not any(shared)\n",
    ),
    _row(
        "warm-ups-cost-nothing", "groups/assignors/tasks/racks.py", (),
        "Copies that warm up are left out of what an assignment costs.",
        "    for role in (mine.active, mine.standby, mine.warmup):\n        yield",
        "    for role in (mine.active, mine.standby):\n        yield",
    ),
)  # fmt: skip

EXCHANGES = (
    _row(
        "two-copies-on-one-process", "groups/assignors/tasks/spread.py", ("T2",),
        "A standby goes to a process that has the task already.",
        "        return next((unit for unit in units if process not in self.holders[unit[0]]), None)\n",
        "        return next(iter(units), None)\n",
    ),
    _row(
        "exchanges-that-gain-nothing", "groups/assignors/tasks/spread.py", (),
        "Standbys change places for nothing, and are restored elsewhere.",
        "            if loss >= max_loss:\n",
        "            if loss > max_loss:\n",
    ),
    _row(
        "exchanges-that-could-be-made-are-not", "groups/assignors/tasks/spread.py", (),
        "Only an exchange by which the other task loses nothing is made.",
        "            if loss >= max_loss:\n",
        "            if loss >= 0:\n",
    ),
    _row(
        "state-is-given-up-first", "groups/assignors/tasks/spread.py", (),
        "A standby that has its state is moved, although one without would have done.",
        "    exchange.exchange_all(move_state=False)\n",
        "",
    ),
    _row(
        "state-is-never-given-up", "groups/assignors/tasks/spread.py", (),
        "A group whose members have state already stays in one zone for ever.",
        "    exchange.exchange_all(move_state=True)\n",
        "",
    ),
    _row(
        "one-round-of-exchanges", "groups/assignors/tasks/spread.py", (),
        "The next target moves standbys again, though nothing has happened.",
        "                    has_changed = True\n",
        "                    has_changed = False\n",
    ),
    _row(
        "old-kinds-of-copies", "groups/assignors/tasks/spread.py", (),
        "Copies of a task that was exchanged are taken for what they were before.",
        "        for task in (one[0], two[0]):\n            self._remove_task(task)\n",
        "",
    ),
    _row(
        "classes-by-the-order-of-members", "groups/assignors/tasks/racks.py", (),
        "Equal groups have different targets, by the order in which members are kept.",
        "        for name in sorted(spec.members):\n            member",
        "        for name in spec.members:\n            member",
    ),
)  # fmt: skip

GROUPS = (
    _row(
        "kafkas-sticky-looks-at-tags", "groups/streams/racks.py", (),
        "In mode kafka a target is another than Kafka's.",
        "    if mode != KIP or not configs",
        "    if not configs",
    ),
    _row(
        "every-assignor-is-corrected", "groups/streams/racks.py", (),
        "What somebody's own assignor says is changed.",
        " or assignor.assign is not sticky.assign:\n",
        ":\n",
    ),
    _row(
        "any-rack-of-what-is-read", "groups/streams/racks.py", (),
        "A task is near where one of its topics is, and reads the others from afar.",
        "frozenset.intersection(*rack_sets)",
        "frozenset.union(*rack_sets)",
    ),
    _row(
        "unknown-racks-are-no-racks", "groups/streams/racks.py", (),
        "One partition of which no rack is known makes all of a task's racks unknown.",
        "if partition < len(racks) and racks[partition]]\n",
        "if partition < len(racks)]\n",
    ),
    _row(
        "first-missing-tag-alone", "groups/streams/heartbeat.py", (),
        "A member that lacks two tags hears of one.",
        "[{', '.join(missing)}]",
        "[{missing[0]}]",
    ),
    _row(
        "old-clients-hear-of-tags", "groups/streams/heartbeat.py", (),
        "A client of version 0 is told a status that it does not know, and ends.",
        "    if missing and decision.context.api_version >= FIRST_VERSION_WITH_MISSING_TAGS:\n",
        "    if missing:\n",
    ),
)  # fmt: skip

RACKS = (*PLACES, *EXCHANGES, *GROUPS)
