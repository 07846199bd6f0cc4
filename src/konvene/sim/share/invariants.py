"""Invariants of the share coordinator, checked after each of its events."""

from __future__ import annotations

from konvene.broker.shares.state_coordinators import NOT_READY
from konvene.errors import Errors
from konvene.share_state.requests import Initialize, Read, Write
from konvene.share_state.state import SharePartitionState
from konvene.sim.share.runtime import StateEvent, in_log
from konvene.sim.world.event import InvariantViolation


class ShareStateInvariant:
    """Base class of invariants that hold after every event of the share coordinator."""

    def check(self, event: StateEvent) -> None:
        """Call `after`, and raise its AssertionError as `InvariantViolation` with the name of this class."""
        try:
            self.after(event)
        except AssertionError as wrong:
            raise InvariantViolation(type(self).__name__, str(wrong) or "does not hold") from wrong
        except LookupError as missing:
            raise InvariantViolation(
                type(self).__name__, f"looks for what is not there: {missing}"
            ) from missing

    def after(self, event: StateEvent) -> None:
        """Check the invariant after `event`, as each subclass defines it. Raises AssertionError if it does
        not hold."""
        raise NotImplementedError


class ShareStateIsStored(ShareStateInvariant):
    """SH10, G1, G3: snapshots and updates, replayed in order, are the current state; and a restart loads the
    same state, except for what the log lacks after its beginning was deleted."""

    def after(self, event: StateEvent) -> None:
        shadow = event.runtime.shadow.states
        assert event.after.keys() == shadow.keys(), f"{sorted(event.after)}, in the log {sorted(shadow)}"
        for key, state in event.after.items():
            if state is not event.before.get(key) or event.kind == "loaded":
                assert state == shadow[key], f"{key}: live {state}, in the log {shadow[key]}"
        if event.kind == "loaded" and not event.lost:
            was, now = event.before, event.after
            if event.runtime.log.cut:
                was, now = ({k: in_log(s) for k, s in known.items()} for known in (was, now))
            assert was == now, f"was {event.before}, and is loaded as {event.after}"


class ShareStateChangesByRecords(ShareStateInvariant):
    """G5: the state changes by records only: a rejected request, or a failed append, changes nothing, and a
    rejected request writes nothing."""

    def after(self, event: StateEvent) -> None:
        if event.kind != "loaded" and event.batch is None:
            assert event.before == event.after, f"{event.request}: changed without a record"
        if event.kind == "request" and event.answer is not None and event.answer.error:
            assert event.batch is None, (
                f"{event.request} is answered {event.answer}, and something is written"
            )


class ShareEpochsRise(ShareStateInvariant):
    """SH9, SH4: only Initialize sets the state epoch, and only Read the leader epoch; a request with an older
    epoch changes nothing. The start offset decreases only by Initialize."""

    def after(self, event: StateEvent) -> None:
        if event.kind == "loaded":
            return
        for key, now in event.after.items():
            was = event.before.get(key)
            if was is None or was is now or isinstance(event.request, Initialize):
                continue
            assert now.state_epoch == was.state_epoch, f"{event.request} made {was} {now}"
            assert now.start_offset >= was.start_offset, f"{event.request} made {was} {now}"
            reads = isinstance(event.request, Read)
            assert now.leader_epoch >= was.leader_epoch, f"{event.request} made {was} {now}"
            assert reads or now.leader_epoch == was.leader_epoch, f"{event.request} made {was} {now}"
        self._check_fencing(event)

    def _check_fencing(self, event: StateEvent) -> None:
        request = event.request
        if event.kind != "request" or not isinstance(request, Write | Initialize | Read):
            return
        was = event.before.get(request.key)
        if was is None or event.answer is None or event.answer.error in NOT_READY:
            return
        old = not isinstance(request, Read) and request.state_epoch < was.highest_state_epoch
        old = old or (not isinstance(request, Initialize) and request.leader_epoch < was.highest_leader_epoch)
        assert not old or event.answer.error, f"{request} is accepted, but the state is {was}"


class ShareWritesAreKept(ShareStateInvariant):
    """SH6: an acknowledged write is in the log. The state then has each offset of the write, and each that it
    had before, unless it is below the start offset; delivery counts and delivery states do not go back."""

    def after(self, event: StateEvent) -> None:
        request = event.request
        if event.kind != "request" or not isinstance(request, Write) or event.answer is None:
            return
        if event.answer.error:
            return
        now = event.after[request.key]
        assert now.start_offset >= request.start_offset, f"{request}: the start is {now.start_offset}"
        assert event.batch is not None, f"{request} is answered, but not written"
        for written in (*request.batches, *event.before[request.key].batches):
            for offset in range(max(written.first_offset, now.start_offset), written.last_offset + 1):
                found = next((b for b in now.batches if b.first_offset <= offset <= b.last_offset), None)
                assert found is not None, f"{request}: offset {offset} is missing in {now}"
                rank = (found.delivery_count, found.delivery_state)
                least = (written.delivery_count, written.delivery_state)
                assert rank >= least, f"{request}: {offset} is kept as {found}"


class ShareBatchesAreInARow(ShareStateInvariant):
    """SH10: the state batches are disjoint, ordered, and not below the start offset. The number of updates
    since the last snapshot is bounded; the bound doubles once the beginning of the log was deleted."""

    def after(self, event: StateEvent) -> None:
        for key, now in event.after.items():
            if now is not event.before.get(key):
                self._check_batches(now)
                most = event.runtime.updates * (2 if event.runtime.log.cut else 1)
                assert now.updates <= most, f"{key}: {now.updates} updates without a snapshot, {most} may be"

    def _check_batches(self, now: SharePartitionState) -> None:
        end = now.start_offset - 1
        for batch in now.batches:
            assert end < batch.first_offset <= batch.last_offset, f"{batch} in {now}"
            assert batch.delivery_state in (0, 2, 3, 4), f"{batch} in {now}"
            end = batch.last_offset


class ShareStateBegins(ShareStateInvariant):
    """SH11: state begins with Initialize, empty and at the requested offset; requests for state that was
    never initialized are rejected."""

    def after(self, event: StateEvent) -> None:
        if event.kind != "request":
            return
        request, answer = event.request, event.answer
        created = event.after.keys() - event.before.keys()
        assert not created or isinstance(request, Initialize), f"{request} made {sorted(created)}"
        if isinstance(request, Initialize) and answer is not None and not answer.error:
            now = event.after[request.key]
            state = (now.state_epoch, now.start_offset, now.batches)
            assert state == (request.state_epoch, request.start_offset, ()), f"{request} made {now}"
        elif isinstance(request, Write | Read) and request.key not in event.before:
            assert answer is not None, f"{request} is not answered"
            assert answer.error is not Errors.NONE, f"{request} is accepted, but nothing was initialized"


def share_state_invariants() -> list[ShareStateInvariant]:
    """Return new instances of all invariants of the share coordinator."""
    return [invariant() for invariant in INVARIANTS]


INVARIANTS: tuple[type[ShareStateInvariant], ...] = (
    ShareStateIsStored, ShareStateChangesByRecords, ShareEpochsRise, ShareWritesAreKept,
    ShareBatchesAreInARow, ShareStateBegins,
)  # fmt: skip
