"""Infer from a coordinator's log why its groups rebalanced, and describe rebalances in sentences, without
I/O.

A konvene broker writes each rebalance with its causes to `__konvene_audit` when it happens; this package is
for logs of other brokers, and for rows of the audit that a crash lost. `History` reads a partition of
`__consumer_offsets` from its beginning and returns a row for each generation of a classic group and each
epoch of a consumer, share or streams group, with the causes that the records prove. `infer` does so for two
successive records of a classic group.

`describe`, `headline` and `sentences` turn rows, recorded or inferred, into text.
"""

from __future__ import annotations

from konvene.groups.history.classic import infer
from konvene.groups.history.reader import History
from konvene.groups.history.sentences import describe, duration, epoch_noun, headline, sentences

__all__ = ["History", "describe", "duration", "epoch_noun", "headline", "infer", "sentences"]
