"""Long computations of a group, which run outside the core: their inputs and their results.

A core never waits. It passes the computation to the code that runs it (`runtime`) as an `Effect` with a
`RegexesToResolve` or `AssignmentToCompute`; the result, a `RegexesResolved` or `AssignmentComputed`, is
handled like a request. The group may have changed by then: a result names what it was computed for, and is
dropped if that is outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from konvene.groups.assignors import Assignor, PartitionAssignorError
from konvene.groups.assignors.tasks.contract import TaskAssignor, TopologyDescriber
from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.shard.image import Topics

RESOLVE_REGEXES = "resolve-regexes"
"""Effect: resolve which topics expressions match. Subject: `RegexesToResolve`."""

COMPUTE_ASSIGNMENT = "compute-assignment"
"""Effect: compute a target that would block the coordinator for too long. Subject: `AssignmentToCompute`."""


@dataclass(frozen=True, slots=True)
class RegexesToResolve:
    """A request to find the topics that the group's expressions match. The expressions are valid."""

    group_id: str
    regexes: tuple[str, ...]
    topics: Topics
    """The existing topics."""
    principal: KafkaPrincipal = ANONYMOUS
    """The user whose request caused this; topics that it may not describe do not match."""
    host: str = ""
    """Address of the client of that request, in Kafka's notation."""


@dataclass(frozen=True, slots=True)
class AssignmentToCompute:
    """A request to compute the next target of a group."""

    group_id: str
    epoch: int
    assignor: Assignor | TaskAssignor
    spec: object
    """The assignor's input: the `GroupSpec` of the group's type."""
    topology: TopologyDescriber | None = None
    """The second input of a task assignor; None for the assignors of other groups."""

    def compute(self) -> object:
        """Return the assignor's result. Raises its error; a custom assignor may raise anything."""
        assign: Callable[..., object] = self.assignor.assign
        return assign(self.spec) if self.topology is None else assign(self.spec, self.topology)


@dataclass(frozen=True, slots=True)
class RegexesResolved:
    """The result of `RegexesToResolve`: the topics that each expression matches."""

    group_id: str
    matches: Mapping[str, frozenset[str]]
    version: int
    """The version (`Topics.version`) of the topics that were matched."""


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The result of `AssignmentToCompute`: the target for an epoch, or an error."""

    group_id: str
    epoch: int
    assignor: str
    result: Any
    """The assignment by member id, or the error of the assignor."""


def failed_result(result: RegexesResolved | AssignmentComputed) -> RegexesResolved | AssignmentComputed:
    """Return a result to handle in place of `result`, which does not fit into the log.

    It reports that no expression matches anything, or that the assignor failed."""
    if isinstance(result, RegexesResolved):
        return replace(result, matches={})
    return replace(result, result=PartitionAssignorError("The assignment does not fit into the log."))
