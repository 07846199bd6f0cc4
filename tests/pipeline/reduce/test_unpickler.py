"""What a warehouse keeps of a reducer is read as values, and runs nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from konvene.groups.history import reader
from konvene.pipeline.reduce.unpickler import unpickled


class Evil:
    """Pickles as a call."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.given


@pytest.mark.parametrize("function", [os.system, subprocess.Popen, eval, getattr, Path, reader.infer])
def test_nothing_is_called_that_is_no_part_of_a_reducer(function: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(pickle.UnpicklingError):
        unpickled(pickle.dumps(Evil(function, f"touch {mark}")))
    assert not mark.exists()


def test_values_are_values() -> None:
    value = {"a": [1, 2.5, None, True], "b": (frozenset({1}), {2}, b"x")}
    assert unpickled(pickle.dumps(value)) == value
    with pytest.raises(EOFError):
        unpickled(b"")
