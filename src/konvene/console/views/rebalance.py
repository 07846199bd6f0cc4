"""One rebalance, step by step, as `konvene explain --why` shows it."""

from __future__ import annotations

from konvene.console.rebalances import key_of
from konvene.console.views.groups import is_open, live_sentence
from konvene.console.views.view import Row, Sections, View
from konvene.pipeline.answers.cost import Ends, costs
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.trace import MemberTrace, trace

__all__ = ["RebalanceView"]


class RebalanceView(View):
    """The view `rebalance`: the rebalance `key` of the group `group`."""

    arguments = ("group", "key")

    async def build(self) -> Sections:
        history, group_id = self.watch.tail.history, self.given["group"]
        found = history.rebalances_of(group_id)
        index = next((i for i, each in enumerate(found) if key_of(each) == self.given["key"]), None)
        if index is None:
            return {"facts": self.facts(group=group_id, exists=False)}
        rebalance = found[index]
        gaps = history.rows("unavailability", (group_id,))
        cost = costs([rebalance], gaps, Ends(())).get(rebalance.key)
        traced = trace(history, rebalance, cost)
        start_ms = rebalance.at_ms
        neighbours = {
            "previous": key_of(found[index + 1]) if index + 1 < len(found) else None,
            "next": key_of(found[index - 1]) if index > 0 else None,
        }
        return {
            "facts": self.facts(
                group=group_id, exists=True, title=traced.title, note=traced.note,
                sentence=live_sentence(rebalance, cost), left_out=traced.left_out,
                **_facts(rebalance), **neighbours,
            ),
            "steps": {
                str(i): {"ms": step.ms, "after_ms": step.ms - start_ms, "text": step.text}
                for i, step in enumerate(traced.steps)
            },
            "members": {each.member_id: _member(each, start_ms) for each in traced.followers},
            "unknown": {str(i): text for i, text in enumerate(traced.unknown)},
        }  # fmt: skip


def _facts(r: Rebalance) -> Row:
    return {
        "cause": r.cause, "evidence": r.evidence, "open": is_open(r), "start_ms": r.start_ms,
        "end_ms": r.end_ms, "duration_ms": r.duration_ms, "epoch": r.to_epoch, "from_epoch": r.from_epoch,
        "type": r.group_type, "state": r.state,
    }  # fmt: skip


def _member(m: MemberTrace, start_ms: int) -> Row:
    def since(ms: int | None) -> int | None:
        return None if ms is None else ms - start_ms

    return {
        "name": m.name, "part": m.part, "before": m.before, "after": m.after, "revoked": m.revoked,
        "added": m.added, "acknowledged_ms": m.acknowledged_ms, "revoked_ms": since(m.gave_up_ms),
        "departed_ms": since(m.left_ms), "joined_ms": since(m.came_ms), "waited_for": list(m.waited_for),
        "states": list(m.states),
    }  # fmt: skip
