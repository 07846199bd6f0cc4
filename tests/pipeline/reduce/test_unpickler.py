"""Reducer state in a warehouse is unpickled as plain values, without calling anything."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from konvene.groups.history import reader
from konvene.pipeline.reduce.unpickler import unpickled


class MaliciousPickle:
    """An object that unpickles as a function call."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.given


@pytest.mark.parametrize("function", [os.system, subprocess.Popen, eval, getattr, Path, reader.infer])
def test_unknown_callables_are_rejected(function: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(pickle.UnpicklingError):
        unpickled(pickle.dumps(MaliciousPickle(function, f"touch {mark}")))
    assert not mark.exists()


def test_plain_values_are_unpickled() -> None:
    value = {"a": [1, 2.5, None, True], "b": (frozenset({1}), {2}, b"x")}
    assert unpickled(pickle.dumps(value)) == value
    with pytest.raises(EOFError):
        unpickled(b"")
