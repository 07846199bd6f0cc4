"""Work of a group that takes long and is done elsewhere: what is asked, and what comes back.

A core never waits. It gives the work to the shell as an `Effect` whose subject is one of the first two; what
comes of it is handled like a request, as one of the last two. By then the group may have moved on: each
answer says what it was computed for, and is dropped where that is no longer so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from konvene.groups.assignors import Assignor, PartitionAssignorError
from konvene.groups.assignors.tasks.contract import TaskAssignor, TopologyDescriber
from konvene.shard.image import Topics

RESOLVE_REGEXES = "resolve-regexes"
"""Effect: which topics do expressions match? Subject: `RegexesToResolve`."""

COMPUTE_ASSIGNMENT = "compute-assignment"
"""Effect: a target that takes too long for the coordinator's turn. Subject: `AssignmentToCompute`."""


@dataclass(frozen=True, slots=True)
class RegexesToResolve:
    """Expressions of a group, all valid, and the topics that there are."""

    group_id: str
    regexes: tuple[str, ...]
    topics: Topics
    principal: str = ""
    """On whose behalf: topics that it may not describe are not seen."""


@dataclass(frozen=True, slots=True)
class AssignmentToCompute:
    """A group's next target."""

    group_id: str
    epoch: int
    assignor: Assignor | TaskAssignor
    spec: Any
    """What the assignor is given: `GroupSpec` of its kind."""
    topology: TopologyDescriber | None = None
    """And this, where it assigns tasks."""

    def compute(self) -> Any:
        """Have the assignor do it. Raises its error, or whatever an assignor of somebody else raises."""
        assign: Callable[..., Any] = self.assignor.assign
        return assign(self.spec) if self.topology is None else assign(self.spec, self.topology)


@dataclass(frozen=True, slots=True)
class RegexesResolved:
    """What they match: topics by expression."""

    group_id: str
    matches: Mapping[str, frozenset[str]]
    version: int
    """That of the topics that were looked at."""


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The target for an epoch, or why there is none."""

    group_id: str
    epoch: int
    assignor: str
    given: Any
    """The assignment by member, or the error of the assignor."""


def given_up(came: RegexesResolved | AssignmentComputed) -> RegexesResolved | AssignmentComputed:
    """The same as nothing: what came does not fit into the log, and the group must not wait for it."""
    if isinstance(came, RegexesResolved):
        return replace(came, matches={})
    return replace(came, given=PartitionAssignorError("The assignment does not fit into the log."))
