"""Every rebalance of a simulated group can be explained, with and without its audit."""

from __future__ import annotations

import json
import re

import pytest
from bench.truth import life

from konvene.pipeline.answers.cost import Ends, costs
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.rebalance import Selection, document
from konvene.pipeline.answers.report import page
from konvene.pipeline.answers.sentences import note, sentence, title
from konvene.pipeline.answers.summary import summarise
from konvene.pipeline.answers.timeline import timeline
from konvene.pipeline.answers.trace import trace
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.sim.runs.run import Run

KINDS = (("classic",), ("static",), ("consumer",), ("consumer-static",), ("migration",), ("streams",))
MALFORMED = re.compile(r"None|\bnan\b|  |;;|: ;|, ;|^\W|[^.”)]$|-\d+ (?:partition|task|ms|min)|\{|\}")
"""Patterns that no sentence contains."""


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
@pytest.mark.parametrize("with_audit", [True, False], ids=["audit", "bare"])
def test_every_simulated_rebalance_has_a_sentence_and_a_trace(
    kinds: tuple[str, ...], with_audit: bool
) -> None:
    world, _, audits = life(Run(11, kinds, 1_500))
    gold = Gold(tables_of("sim", world.log.batches, audits.explanations if with_audit else ()))
    assert len(gold.rebalances) > 5
    cost = costs(gold.rebalances, gold.rows("unavailability"), Ends([]))
    for each in gold.rebalances:
        text = sentence(each, cost.get(each.key))
        assert not MALFORMED.search(text), text
        assert title(each).startswith(f"{each.group_id} ({each.group_type}), ")
        assert bool(note(each)) == (each.evidence != "observed")
        assert json.loads(json.dumps(document(each, cost.get(each.key))))["to_epoch"] == each.to_epoch
        traced = trace(gold, each)
        assert [step.ms for step in traced.steps] == sorted(step.ms for step in traced.steps)
        assert all("None" not in step.text for step in traced.steps)
        lanes = timeline(traced, 90)
        assert all(len(line) <= 90 for line in lanes), lanes
        if each.start_ms is not None and each.end_ms is not None and each.end_ms > each.start_ms:
            assert lanes or not traced.followers


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_simulated_run_has_a_summary_and_a_page(kinds: tuple[str, ...]) -> None:
    world, _, audits = life(Run(12, kinds, 1_500))
    gold = Gold(tables_of("sim", world.log.batches, audits.explanations))
    summary = summarise(gold, Selection())
    assert summary.rebalances == len(gold.rebalances)
    for each in summary.advice:
        assert not MALFORMED.search(each.text), each.text
        assert 0 < len(each.epochs) == each.numbers["rebalances"] <= each.numbers["of"]
    assert page(gold, Selection()).endswith("</html>\n")
