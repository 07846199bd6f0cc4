"""Why a group rebalanced, told from what its coordinator wrote down: inference and sentences. Pure.

A broker of ours writes the full story to `__konvene_audit` when it happens; what is here is for logs of
brokers that do not, and for rows that a crash lost. `History` reads a partition of `__consumer_offsets` from
its beginning and gives a row for each generation of a classic group and for each epoch of a consumer, share
or streams group, with the causes that the records prove. `infer` does so for two successive records of a
classic group.

`describe`, `headline` and `sentences` put rows of either kind into words.
"""

from __future__ import annotations

from konvene.groups.history.classic import infer
from konvene.groups.history.reader import History
from konvene.groups.history.sentences import describe, duration, headline, sentences, word

__all__ = ["History", "describe", "duration", "headline", "infer", "sentences", "word"]
