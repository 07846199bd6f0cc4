"""Bugs in the assignor that lets tasks with state wait for their copies: who moves, who warms up, and when.

Its own tests show them: an invariant of random groups, a group whose members restore, or a sentence of its
text.
"""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import Mutant


def _row(name: str, file: str, ids: tuple[str, ...], breaks: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, ids, breaks, old, new, level=4)


WARMUPS = (
    _row(
        "tasks-go-to-who-is-behind", "groups/assignors/highly_available/active_tasks.py", ("T1",),
        "A task with state moves to a process that has some of its state, however far behind it is.",
        "            if may_take[target] and group.has_caught_up(target, task)\n",
        "            if may_take[target]\n",
    ),
    _row(
        "more-warm-up-than-may", "groups/assignors/highly_available/active_tasks.py", ("T13",),
        "All tasks that are to move warm up at once, and restoring takes all the disks have.",
        "        self.warmups[task] = target\n        self.warmups_left -= 1\n        return True\n",
        "        self.warmups[task] = target\n        return True\n",
    ),
    _row(
        "silent-members-are-waited-for", "groups/assignors/highly_available/indexed_group.py", ("L1",),
        "A member that never says how far it is warms tasks up, and is given none of them.",
        "        self.can_wait = [self.warmups > 0 and any(self.reports[m] for m in some) for some in self.members_of]\n",
        "        self.can_wait = [self.warmups > 0 for some in self.members_of]\n",
    ),
    _row(
        "warmup-of-a-silent-thread", "groups/assignors/highly_available/members.py", ("L1",),
        "A task warms up at a member that does not report, and nobody hears that it has caught up.",
        "    return found if found == ABSENT or group.reports[found] or not warms_up else ABSENT\n",
        "    return found\n",
    ),
    _row(
        "warmup-that-has-caught-up-goes-on", "groups/assignors/highly_available/active_tasks.py", ("T7",),
        "A warm-up that has caught up stays one, holds its place, and the epoch rises again and again.",
        "            if copy.warms_up and copy.process != process_of[task] and group.reports[copy.member]\n            and not group.has_caught_up(copy.process, task)\n",
        "            if copy.warms_up and copy.process != process_of[task] and group.reports[copy.member]\n",
    ),
    _row(
        "failover-to-who-is-not-the-furthest", "groups/assignors/highly_available/active_tasks.py", ("L1",),
        "A task whose process died goes to any process with state of it.",
        "            most_advanced = [p for p in with_state if group.progress_rank(p, task) == furthest]\n",
        "            most_advanced = [p for p in with_state if group.progress_rank(p, task) >= furthest]\n",
    ),
    _row(
        "busy-owners-look-behind", "groups/assignors/highly_available/indexed_group.py", ("L1",),
        "An owner is measured by the latest end that anybody told, and loses its task while it is busy.",
        "        end = of.task_end_offsets.get(name, {}).get(partition)\n",
        "        end = self.progress.ends.get((name, partition))\n",
    ),
    _row(
        "standby-beside-its-warmup", "groups/assignors/highly_available/standbys.py", ("T7",),
        "A standby that warms up to apply_soft_state over is replaced by another one, which restores in vain.",
        "            wanted = group.standbys - len(kept) - (excluded[1] != ABSENT)\n",
        "            wanted = group.standbys - len(kept)\n",
    ),
    _row(
        "plans-change-with-each-answer", "groups/assignors/highly_available/active_tasks.py", ("L1",),
        "What warms up is left for what is further on, again and again.",
        "        for _, task, target in ongoing_warmups:\n            self._start_warmup(task, target)\n",
        "",
    ),
    _row(
        "standbys-move-before-they-are-warm", "groups/assignors/highly_available/standbys.py", ("T7",),
        "A standby moves to an emptier process at once, and until that has restored there is none.",
        "                target = processes.first(limit, excluded, group.can_wait)\n            else:\n                return False\n            immediately = bool(ready)\n",
        "                target = processes.first(limit, excluded, group.can_wait)\n            else:\n                return False\n            immediately = True\n",
    ),
)  # fmt: skip
