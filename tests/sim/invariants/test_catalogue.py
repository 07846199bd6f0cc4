"""The catalogue of invariants: which files apply to which group types, and how each invariant is named."""

from __future__ import annotations

from collections import Counter

from konvene.sim.end_to_end.security_invariants import SECURITY_INVARIANTS
from konvene.sim.invariants import classes_of, invariants_of
from konvene.sim.reference import ELSEWHERE


def test_modules_apply_to_their_group_types() -> None:
    """`invariants_of` returns new instances of the invariants of a group type, or of all types."""

    def files(*kinds: str) -> set[str]:
        modules = {cls.__module__ for cls in classes_of(kinds)}
        return {module.removeprefix("konvene.sim.invariants.") for module in modules}

    assert files("classic") == {
        "classic.state",
        "classic.generations",
        "classic.rebalances",
        "log",
        "offsets",
    }
    assert files() == files("classic") | {
        "classic.static",
        "consumer.state", "consumer.decisions", "consumer.targets", "consumer.migration",
        "streams.state", "streams.migration", "streams.decisions", "streams.targets", "streams.responses",
        "streams.warmups",
        "share",
    }  # fmt: skip
    assert files("no such kind") == {"log", "offsets"}
    first, second = invariants_of(["static"]), invariants_of(["static"])
    assert [type(p) for p in first] == [type(p) for p in second]
    assert not any(a is b for a, b in zip(first, second, strict=True))


def test_invariants_of_security_are_listed() -> None:
    """The reference has the name and the sentence of each, which are checked at level 2 only."""
    sentences = {name: sentence for name, _, sentence in ELSEWHERE}
    for number, invariant in enumerate(SECURITY_INVARIANTS, 1):
        sentence = " ".join((invariant.__doc__ or "").split())
        assert sentence.startswith(f"SE{number}: ")
        assert sentences[invariant.__name__] == sentence


NUMBERS = ("G", "C", "ST", "M", "MG", "O", "L", "T", "SH")


def test_docstring_of_each_invariant_begins_with_its_numbers() -> None:
    """The numbers are those of the catalogue, or "Ours"."""
    prefixes = Counter((cls.__doc__ or "").partition(":")[0] for cls in classes_of())
    for numbers in prefixes:
        for one in numbers.split(", "):
            assert one == "Ours" or one.rstrip("0123456789") in NUMBERS, numbers
