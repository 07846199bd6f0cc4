"""What the tables say, said to people: sentences, stories, advice, a page.

    gold = Gold(warehouse=Warehouse("warehouse"))
    for rebalance in gold.select(Selection(("orders-app",))):
        print(title(rebalance), sentence(rebalance))

Everything here reads gold tables, which are small, and none of it needs Spark. Nothing is decided here
about why a group rebalanced: that is the reducer's; here it is put into words, and counted.
"""

from __future__ import annotations

from konvene.pipeline.answers.advice import Advice, Facts, advise
from konvene.pipeline.answers.cost import Cost, Ends, costs
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.rebalance import Cause, Rebalance, Selection, document
from konvene.pipeline.answers.sentences import note, sentence, title
from konvene.pipeline.answers.summary import Summary, summarise
from konvene.pipeline.answers.timeline import timeline
from konvene.pipeline.answers.why import Story, find, tell

__all__ = [
    "Advice", "Cause", "Cost", "Ends", "Facts", "Gold", "Rebalance", "Selection", "Story", "Summary",
    "advise", "costs", "document", "find", "note", "sentence", "summarise", "tell", "timeline",
    "title",
]  # fmt: skip
