"""End-to-end runs of a broker with an authorizer uphold every invariant, and detect planted bugs.

No client gets a response, a record or a renewed session without the right at that moment, and none is denied
that has it. `tests.mutation --level 8` plants more bugs.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.hash_seeds import outputs_of_processes

from konvene.broker.net.authorization import Authorization
from konvene.broker.net.connection import Connection
from konvene.broker.net.response_cache import ResponseCache
from konvene.security.session import Session
from konvene.sim.end_to_end import run_end_to_end
from konvene.sim.end_to_end.invariant import Violation
from konvene.sim.end_to_end.parameters import draw
from konvene.sim.end_to_end.secured_clients import SECURED_JOBS
from konvene.sim.runs.parallel import Job
from konvene.sim.runs.run import Run

STEPS = 1_500


def trace_digest(seed: int, steps: int) -> str:
    """Return the SHA-256 digest of a run's trace."""
    digest = hashlib.sha256()
    run_end_to_end(seed, steps, secured=True, trace=lambda line: digest.update(line.encode() + b"\n"))
    return digest.hexdigest()


@pytest.mark.parametrize("seed", [3, 5])
def test_chaos_violates_no_invariant(seed: int) -> None:
    """ACLs come and go, sessions end, and the broker dies."""
    report = run_end_to_end(seed, STEPS, secured=True)
    answers = report.answers
    assert answers["SaslAuthenticate NONE"]
    assert answers["CreateAcls NONE"]
    assert answers["ShareGroupHeartbeat NONE"]
    assert answers["StreamsGroupHeartbeat GROUP_AUTHORIZATION_FAILED"]


def test_trace_is_a_function_of_the_seed() -> None:
    """The trace is equal in this process and in a process with another hash seed."""
    code = "from tests.sim.end_to_end.test_security import trace_digest; print(trace_digest(5, 300))"
    assert outputs_of_processes(code, 77) == {f"{trace_digest(5, 300)}\n"}


def test_users_take_the_place_of_all_other_clients() -> None:
    for seed in range(20):
        secured = draw(seed, secured=True)
        assert {client.job for client in secured.clients} <= {"acl-admin", *SECURED_JOBS}
        assert secured.secured is not None
        assert secured.topics == draw(seed).topics
        assert secured.faults == draw(seed).faults


def test_job_has_the_command_that_repeats_it() -> None:
    job = Job(Run(7, ("secured",), 900), 2)
    assert job.command() == "konvene sim run --level 2 --seed 7 --steps 900 --groups secured"
    assert job.groups == "whole broker, secured"


# --- planted bugs ----------------------------------------------------------------------------------


def find_violation(seeds: range, steps: int = 3_000) -> str:
    for seed in seeds:
        try:
            run_end_to_end(seed, steps, secured=True)
        except Violation as violation:
            assert "--groups secured" in str(violation)
            return violation.invariant
    pytest.fail(f"no violation within {len(seeds)} seeds")


def test_cache_without_the_identity_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Connection._begin_session

    def begin_session(self: Connection, session: Session) -> None:
        begin(self, session)
        self._identity = b""

    monkeypatch.setattr(Connection, "_begin_session", begin_session)
    assert find_violation(range(5)) == "ResponsesNeedTheirRights"


def test_cache_that_outlives_a_change_of_acls_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseCache, "invalidate", lambda self: None)
    assert find_violation(range(1, 9)) == "ResponsesNeedTheirRights"


def test_denied_request_with_the_right_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    permits, number = Authorization.permits, iter(range(1 << 30))

    def permits_most(self: Authorization, *args: Any, **kwargs: Any) -> bool:
        return permits(self, *args, **kwargs) and bool(next(number) % 50)

    monkeypatch.setattr(Authorization, "permits", permits_most)
    assert find_violation(range(3)) == "RightsAreGranted"
