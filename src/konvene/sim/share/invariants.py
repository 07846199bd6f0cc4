"""What holds after every event of the share coordinator, a class each."""

from __future__ import annotations

from konvene.broker.shares.state_coordinators import NOT_READY
from konvene.errors import Errors
from konvene.share_state.requests import Initialize, Read, Write
from konvene.share_state.state import SharePartitionState
from konvene.sim.share.runtime import StateEvent, in_log
from konvene.sim.world.event import InvariantViolation


class ShareStateInvariant:
    """What holds after every event of the core of share state."""

    def check(self, event: StateEvent) -> None:
        """Raises `InvariantViolation` where it does not hold."""
        try:
            self.after(event)
        except AssertionError as wrong:
            raise InvariantViolation(type(self).__name__, str(wrong) or "does not hold") from wrong
        except LookupError as missing:
            raise InvariantViolation(
                type(self).__name__, f"looks for what is not there: {missing}"
            ) from missing

    def after(self, event: StateEvent) -> None:
        raise NotImplementedError


class ShareStateIsItsLog(ShareStateInvariant):
    """SH10, G1, G3: snapshots and updates, read one after another, are what is known; and a restart changes
    nothing of what was not lost, but for what a log that was cut does not say."""

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
    """G5: a refusal, or what could not be appended, leaves no trace; nothing changes without a record, and
    none is written where something is refused."""

    def after(self, event: StateEvent) -> None:
        if event.kind != "loaded" and event.batch is None:
            assert event.before == event.after, f"{event.request}: changed without a record"
        if event.kind == "request" and event.answer is not None and event.answer.error:
            assert event.batch is None, (
                f"{event.request} is answered {event.answer}, and something is written"
            )


class ShareEpochsRise(ShareStateInvariant):
    """SH9, SH4: the state epoch is set by Initialize alone and the leader epoch by Read; who comes with an
    older one changes nothing. The start offset never goes back, but for Initialize."""

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
        self._fences(event)

    def _fences(self, event: StateEvent) -> None:
        asked = event.request
        if event.kind != "request" or not isinstance(asked, Write | Initialize | Read):
            return
        was = event.before.get(asked.key)
        if was is None or event.answer is None or event.answer.error in NOT_READY:
            return
        old = not isinstance(asked, Read) and asked.state_epoch < was.highest_state_epoch
        old = old or (not isinstance(asked, Initialize) and asked.leader_epoch < was.highest_leader_epoch)
        assert not old or event.answer.error, f"{asked} is taken, and there is {was}"


class ShareWritesAreKept(ShareStateInvariant):
    """SH6: what is answered NONE is in what is known: each offset in the state that was told, or behind the
    start; so is what was known before; and it is in the log."""

    def after(self, event: StateEvent) -> None:
        asked = event.request
        if event.kind != "request" or not isinstance(asked, Write) or event.answer is None:
            return
        if event.answer.error:
            return
        now = event.after[asked.key]
        assert now.start_offset >= asked.start_offset, f"{asked}: the start is {now.start_offset}"
        assert event.batch is not None, f"{asked} is answered, and not written"
        for told in (*asked.batches, *event.before[asked.key].batches):
            for offset in range(max(told.first_offset, now.start_offset), told.last_offset + 1):
                found = next((b for b in now.batches if b.first_offset <= offset <= b.last_offset), None)
                assert found is not None, f"{asked}: nothing is known of {offset}: {now}"
                rank = (found.delivery_count, found.delivery_state)
                least = (told.delivery_count, told.delivery_state)
                assert rank >= least, f"{asked}: {offset} is kept as {found}"


class ShareBatchesAreInARow(ShareStateInvariant):
    """SH10: batches of what is known are disjoint, in order, and none is before the start; and a snapshot
    comes after so many updates at the latest. Of a log that was cut some are counted that came before it."""

    def after(self, event: StateEvent) -> None:
        for key, now in event.after.items():
            if now is not event.before.get(key):
                self._look(now)
                most = event.runtime.updates * (2 if event.runtime.log.cut else 1)
                assert now.updates <= most, f"{key}: {now.updates} updates without a snapshot, {most} may be"

    def _look(self, now: SharePartitionState) -> None:
        end = now.start_offset - 1
        for batch in now.batches:
            assert end < batch.first_offset <= batch.last_offset, f"{batch} in {now}"
            assert batch.delivery_state in (0, 2, 3, 4), f"{batch} in {now}"
            end = batch.last_offset


class ShareStateBegins(ShareStateInvariant):
    """SH11: state begins with Initialize, with nothing in it and where it was told to; who asks for what was
    never begun is refused."""

    def after(self, event: StateEvent) -> None:
        if event.kind != "request":
            return
        asked, answer = event.request, event.answer
        come = event.after.keys() - event.before.keys()
        assert not come or isinstance(asked, Initialize), f"{asked} made {sorted(come)}"
        if isinstance(asked, Initialize) and answer is not None and not answer.error:
            now = event.after[asked.key]
            told = (now.state_epoch, now.start_offset, now.batches)
            assert told == (asked.state_epoch, asked.start_offset, ()), f"{asked} made {now}"
        elif isinstance(asked, Write | Read) and asked.key not in event.before:
            assert answer is not None, f"{asked} is not answered"
            assert answer.error is not Errors.NONE, f"{asked} is answered, and nothing is known of it"


def share_state_invariants() -> list[ShareStateInvariant]:
    """All of them, made anew."""
    return [invariant() for invariant in INVARIANTS]


INVARIANTS: tuple[type[ShareStateInvariant], ...] = (
    ShareStateIsItsLog, ShareStateChangesByRecords, ShareEpochsRise, ShareWritesAreKept,
    ShareBatchesAreInARow, ShareStateBegins,
)  # fmt: skip
