"""Explanations from the gold tables: sentences, traces, advice and a report page.

    gold = Gold(warehouse=Warehouse("warehouse"))
    for rebalance in gold.select(Selection(("orders-app",))):
        print(title(rebalance), sentence(rebalance))

The modules here read gold tables only, which are small, and need no Spark. They do not decide why a group
rebalanced: the reducer did. They phrase and count its results.

`Gold` is loaded when it is first used, because it needs Arrow; all other names can be imported without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.pipeline.answers.advice import Advice, Facts, advise
from konvene.pipeline.answers.cost import Cost, Ends, costs
from konvene.pipeline.answers.damage import Damage
from konvene.pipeline.answers.rebalance import Cause, Rebalance, Selection, document
from konvene.pipeline.answers.sentences import caveats, note, sentence, title
from konvene.pipeline.answers.summary import Summary, summarise
from konvene.pipeline.answers.timeline import timeline
from konvene.pipeline.answers.trace import RebalanceTrace, find_rebalances, trace

if TYPE_CHECKING:
    from konvene.pipeline.answers.gold import Gold

__all__ = [
    "Advice", "Cause", "Cost", "Damage", "Ends", "Facts", "Gold", "Rebalance", "RebalanceTrace", "Selection",
    "Summary", "advise", "caveats", "costs", "document", "find_rebalances", "note", "sentence", "summarise",
    "timeline", "title", "trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "Gold":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from konvene.pipeline.answers.gold import Gold

    return Gold
