"""Regular expressions of ListTransactions: supported syntax, rejections, and linear run time."""

from __future__ import annotations

import re
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from konvene.transactions.pattern import MAX_CACHED, MAX_STATES, InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["order", "orders2", "my orders", ""]),
        (".*", ["", "a", "ab.-é"], ["a\n", "\u2028"]),
        ("a.c", ["abc", "a.c"], ["ac", "abbc", "a\nc"]),
        (r"a\.c", ["a.c"], ["abc"]),
        ("ab*", ["a", "ab", "abbb"], ["b", "aba"]),
        ("ab+", ["ab", "abbb"], ["a"]),
        ("ab?c", ["ac", "abc"], ["abbc"]),
        ("a{3}", ["aaa"], ["aa", "aaaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a", ""]),
        ("a{1,3}b", ["ab", "aaab"], ["b", "aaaab"]),
        ("a{0,2}", ["", "a", "aa"], ["aaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("(ab|c)+", ["ab", "c", "abcab"], ["", "a", "abd"]),
        ("a|", ["a", ""], ["b"]),
        ("(?:app-)?[0-9]+", ["app-12", "7"], ["app-", "app7"]),
        ("[a-cx-]+", ["abcx-"], ["d"]),
        ("[^a-c.]", ["d", "\n"], ["a", ".", ""]),
        (r"[\d\-\]]+", ["1-]"], ["a"]),
        (r"\w+\s\S\D\W", ["ab1_ x!."], ["ab1_ x1.", "é x!."]),
        (r"\t", ["\t"], ["t"]),
        ("^a$", ["a"], ["^a$"]),
        ("(a)b$", ["ab"], ["a"]),
        ("[a&b]", ["a", "&", "b"], ["a&b"]),
        (r"[+-\-]", ["+", ",", "-"], ["\\", "."]),
        ("[a-a]", ["a"], ["-"]),
        (r"\é", ["é"], ["\\é"]),
        ("a*?b+?", ["b", "aabb"], ["a"]),
        ("(a+)+b", ["ab", "aaab"], ["a" * 2000]),
    ],
)
def test_pattern_matches_whole_names(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[a", "[]", "*", "+a", "?", "a**", "a*+", "{1}", "a{", "a{x}", "a{2,1}",
        "a{99999}", "a{1", "\\", r"\p{L}", r"\1", r"\b", "(?=a)", "(?<n>a)", "(?i)a", "[z-a]", "[[a]]",
        "[a&&b]", "[]a]", "[a-[b]]", "[A-[b]]", "a^b", "a$b", "($|a)", "(" * 200 + ")" * 200,
        "a" * MAX_STATES, "(a{1000}){1000}",
    ],
)  # fmt: skip
def test_invalid_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="near index"):
        Pattern(pattern)


parts = st.recursive(
    st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", r"\W", "-"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@given(parts, st.lists(st.text("ab.-1", max_size=6), max_size=8))
@example("(a){1,}", ["aaa", ""])
def test_matches_equal_those_of_python(pattern: str, names: list[str]) -> None:
    compiled, other = Pattern(pattern), re.compile(pattern, re.ASCII)
    assert [compiled.matches(name) for name in names] == [bool(other.fullmatch(name)) for name in names]


def test_state_cache_is_bounded() -> None:
    compiled = Pattern(".*")
    assert compiled.matches("".join(map(chr, range(0x4E00, 0x4E00 + MAX_CACHED + 100))))
    assert 0 < len(compiled._cache) <= MAX_CACHED


def test_matching_takes_linear_time() -> None:
    """A backtracking matcher would take exponential time."""
    began = process_time()
    assert not Pattern("(a*)*(a|aa)*(a?){50}b").matches("a" * 30_000)
    assert process_time() - began < 5
