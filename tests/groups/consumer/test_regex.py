"""Regular expressions of topics: RE2's syntax, with and without google-re2, in bounded time and memory."""

from __future__ import annotations

import sys
import threading
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth

from konvene.errors import Errors
from konvene.groups.consumer import regex
from konvene.groups.consumer.regex import matching, validate
from konvene.shard.errors import GroupError

try:
    import re2

    INSTALLED = True
except ImportError:
    INSTALLED = False

needs_re2 = pytest.mark.skipif(
    not INSTALLED, reason="google-re2 is not installed: pip install 'konvene[re2]' (make test does)"
)
both_engines = pytest.mark.parametrize("engine", [pytest.param("re2", marks=needs_re2), "without"])


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With google-re2, or as if it were absent."""
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "re2", None)
    return str(request.param)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


def refusal(pattern: str) -> str:
    """Return the error message of an expression after the part that quotes it."""
    with pytest.raises(GroupError) as refused:
        validate(pattern)
    assert refused.value.error is Errors.INVALID_REGULAR_EXPRESSION
    message = refused.value.message or ""
    before = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: "
    assert message.startswith(before) and message.endswith(".")
    return message.removeprefix(before).removesuffix(".")


def matched(pattern: str, *names: str) -> set[str]:
    validate(pattern)
    return set(matching([pattern], names)[pattern])


NAMES = (
    "orders",
    "orders-eu",
    "orders.eu",
    "ordersXeu",
    "Orders",
    "a",
    "b",
    "ab",
    "aab",
    "",
    "a-b",
    "]",
    "é",
)

MATCHES = [
    ("orders", {"orders"}),
    ("order", set()),
    ("orders.eu", {"orders-eu", "orders.eu", "ordersXeu"}),
    (r"orders\.eu", {"orders.eu"}),
    (r"orders\-eu", {"orders-eu"}),
    ("orders.*", {"orders", "orders-eu", "orders.eu", "ordersXeu"}),
    ("^orders.*$", {"orders", "orders-eu", "orders.eu", "ordersXeu"}),
    ("orders.+", {"orders-eu", "orders.eu", "ordersXeu"}),
    ("[a-z]+", {"orders", "a", "b", "ab", "aab"}),
    ("[^a-z]rders", {"Orders"}),
    ("[oO]rders", {"orders", "Orders"}),
    ("orders[.-]eu", {"orders-eu", "orders.eu"}),
    (r"orders[\-\.]eu", {"orders-eu", "orders.eu"}),
    ("a[b-]*", {"a", "ab", "a-b"}),
    ("a[a-]*b", {"ab", "aab", "a-b"}),
    ("[]]", {"]"}),
    ("]", {"]"}),
    ("a*b*", {"a", "b", "ab", "aab", ""}),
    ("a+b", {"ab", "aab"}),
    ("a*a*a*b", {"b", "ab", "aab"}),
    ("", {""}),
    ("^", {""}),
    ("^$", {""}),
    ("é", {"é"}),
    (".*", set(NAMES)),
]


@both_engines
@pytest.mark.parametrize(("pattern", "expected"), MATCHES)
@pytest.mark.usefixtures("engine")
def test_name_is_matched_whole(pattern: str, expected: set[str]) -> None:
    assert expected == matched(pattern, *NAMES)


@needs_re2
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(?i)orders", {"orders", "Orders"}),
        ("orders|a", {"orders", "a"}),
        ("^a|b$", {"a", "b"}),
        ("(?P<what>orders)[.](?P<where>eu)", {"orders.eu"}),
        (r"\w+", {"orders", "ordersXeu", "Orders", "a", "b", "ab", "aab"}),
        ("a{1,2}b?", {"a", "ab", "aab"}),
        ("[[:upper:]].*", {"Orders"}),
        (r"\Qorders.\Eeu", {"orders.eu"}),
        (r"\Q\C\E|a", {"a"}),
        (r"a|\\C", {"a"}),
    ],
)
def test_all_of_re2_is_supported(pattern: str, expected: set[str]) -> None:
    assert expected == matched(pattern, *NAMES)


INVALID = [
    ("[", "missing closing ]"),
    ("[a", "missing closing ]"),
    ("[]", "missing closing ]"),
    ("[z-a]", "invalid character class range"),
    ("*a", "missing argument to repetition operator"),
    ("+", "missing argument to repetition operator"),
    ("a**", "invalid nested repetition operator"),
    ("a*+", "invalid nested repetition operator"),
    ("a\\", "trailing backslash at end of expression"),
    ("\ud800", "invalid UTF-8"),
]


@both_engines
@pytest.mark.parametrize(("pattern", "message"), INVALID)
@pytest.mark.usefixtures("engine")
def test_invalid_expression_is_refused_with_kafkas_message(pattern: str, message: str) -> None:
    assert message == refusal(pattern)


@needs_re2
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("a{1001}", "invalid repeat count"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("(?<!b)a", "invalid or unsupported Perl syntax"),
        (r"(a)\1", "invalid escape sequence"),
        (r"a\C", "invalid escape sequence"),
        (r"\Qa\E\C", "invalid escape sequence"),
        ("(?P<>a)", "invalid named capture"),
        ("[[:letters:]]", "invalid character class range"),
        ("x{0,1000}" * 100, "expression too large"),
        ("a" * 1_000_000, "expression too large"),
        ("a?" * 4000, "expression too large"),
    ],
)
def test_expression_refused_by_re2(pattern: str, message: str) -> None:
    assert message == refusal(pattern)


@needs_re2
def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    refusal("[")
    refusal("a" * 190_000)
    matching(["[", ".*[ab].{200}x|.*[bc].{190}y"], ["ab" * 124])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("a?", "`?`"),
        ("a*?", "`?`"),
        ("a|b", "an alternative (`|`)"),
        ("(a)", "a group (`(`)"),
        ("a)", "a group (`)`)"),
        ("a{2}", "a counted repetition (`{`)"),
        (r"\d", r"`\d`"),
        (r"[\d]", r"`\d`"),
        ("[[:alpha:]]", "a named class (`[:`)"),
        ("a^b", "`^` after the beginning"),
        ("a$b", "`$` before the end"),
        ("^*", "`^*`"),
        ("a" * 5000, "one of more than 4096 characters"),
    ],
)
@pytest.mark.usefixtures("without")
def test_an_expression_that_needs_re2_names_the_extra(pattern: str, construct: str) -> None:
    expected = f"{construct} needs google-re2, which is not installed here (pip install 'konvene[re2]')"
    assert expected == refusal(pattern)
    assert matching([pattern], ["a", ""]) == {pattern: frozenset()}


@pytest.mark.usefixtures("without")
def test_another_module_of_that_name_is_not_google_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", pytest)
    assert "google-re2" in refusal("a?")


@both_engines
@pytest.mark.usefixtures("engine")
def test_invalid_expression_takes_nothing_from_others() -> None:
    found = matching(["b.*", "[", "a.*"], iter(["ab", "ba", "c"]))
    assert found == {"b.*": frozenset({"ba"}), "[": frozenset(), "a.*": frozenset({"ab"})}
    assert list(found) == ["b.*", "[", "a.*"]
    assert matching([], ["a"]) == {}
    assert matching(["a"], []) == {"a": frozenset()}


@needs_re2
def test_large_expressions_are_matched_beside_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouping expressions into sets does not change their matches."""
    names = [f"topic-{i}" for i in range(0, 3000, 7)]
    listed = "|".join(f"topic-{i}" for i in range(2000))
    patterns = [listed, *(f"topic-{i}.*" for i in range(40)), "(topic)-(1|2).*"]
    expected = {p: frozenset(n for n in names if re2.fullmatch(p, n)) for p in patterns}
    assert expected == matching(patterns, names)
    monkeypatch.setattr(regex, "SET_INSTRUCTIONS", 100)
    assert expected == matching(patterns, names)


@needs_re2
@pytest.mark.parametrize("memory", [1, 30_000, 60_000])
def test_a_set_out_of_memory_loses_no_match(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An RE2 set that runs out of memory reports no match at all."""
    patterns = [f".*{a}.*{b}.*[{a}{b}].{{9}}" for a in "abcdef" for b in "abcdef" if a != b]
    names = ["".join("abcdef"[(i * j + j // 3) % 6] for j in range(200)) for i in range(40)]
    expected = {p: frozenset(n for n in names if re2.fullmatch(p, n)) for p in patterns}
    assert any(expected.values())
    monkeypatch.setattr(regex, "SET_MEMORY_BYTES", memory)
    assert expected == matching(patterns, names)


@needs_re2
def test_validation_while_another_thread_matches() -> None:
    """Names are matched off the loop; google-re2 is shared by both."""
    patterns = [f"a{i}.*" for i in range(200)]
    names = [f"a{i}-" for i in range(200)]
    found: list[dict[str, frozenset[str]]] = []
    thread = threading.Thread(target=lambda: found.extend(matching(patterns, names) for _ in range(5)))
    thread.start()
    for pattern in patterns * 3:
        validate(pattern)
    thread.join()
    assert len(found) == 5 and all(each == found[0] for each in found)
    assert found[0]["a19.*"] == {"a19-", *(f"a19{i}-" for i in range(10))}


# Hostile expressions. The limits are generous: without the defences these take minutes or for ever.

HOSTILE = [
    "a*" * 30 + "b",
    "a*" * 2000 + "b",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+" * 50,
    "(?:a?){1000}a{1000}",
    "x{0,1000}" * 40,
    "x{0,1000}" * 8000,
    "a?" * 16_000,
    "(a|)" * 16_000,
    "((a{0,100}){0,100}){0,100}",
    ".*a.{1000}" * 5,
    r"(?:\pL){299}",
    "(" * 100_000 + ")" * 100_000,
    "(?:a" * 100_000 + ")*" * 100_000,
    "[" * 200_000,
    "[a" * 100_000,
    "[^" * 100_000 + "]",
    "\\" * 200_001,
    "(?i)" * 50_000,
    r"\Q" * 100_000,
    r"\Q\E" * 60_000 + r"\C",
    "." * 1_000_000,
    ".*" * 2048,
    "[a-z]*[b-y]+" * 300,
    "[ab]c" * 80_000,
    "(?:x{0,1000}y){1}" * 10,
    "\0" * 100,
]


@both_engines
@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda p: f"{p[:12]!a}-{len(p)}")
@pytest.mark.usefixtures("engine")
def test_hostile_expression_is_answered_soon(pattern: str) -> None:
    before = process_time()
    try:
        validate(pattern)
    except GroupError as refused:
        assert refused.error is Errors.INVALID_REGULAR_EXPRESSION
    assert set(matching([pattern, "a+"], ["a" * 249, "ab" * 124])["a+"]) == {"a" * 249}
    assert process_time() - before < 5


# An expression that is accepted without google-re2 matches what it matches in RE2.

LITERALS = st.sampled_from([*"abcAB.-_019 ]},:&~#/é\n", r"\.", r"\-", r"\*", r"\[", r"\\", r"\^", r"\ "])
IN_CLASS = st.sampled_from(
    [*"abcz.^$*+?(|{[&~é", r"\]", r"\-", r"\\", r"\.", "a-c", "A-Z", "0-9", r"\+-\.", ".-.", "--a"]
)
CLASSES = st.builds(
    lambda negated, first, inside, last: f"[{negated}{first}{''.join(inside)}{last}]",
    st.sampled_from(["", "^"]),
    st.sampled_from(["", "]", "-"]),
    st.lists(IN_CLASS, min_size=1, max_size=4),
    st.sampled_from(["", "-"]),
)
ATOMS = st.one_of(LITERALS, st.just("."), CLASSES).filter(
    lambda atom: atom not in "^$*+?()|{[" or atom == "."
)
PARTS = st.tuples(ATOMS, st.sampled_from(["", "", "*", "+"])).map("".join)
SUBSET = st.builds(
    lambda first, parts, last: first + "".join(parts) + last,
    st.sampled_from(["", "^"]),
    st.lists(PARTS, max_size=7),
    st.sampled_from(["", "$"]),
)
SOME_NAMES = st.lists(st.text("abcAB.-_019 ]^*\\é\n", max_size=9), max_size=12)
ANYTHING = st.text(r"ab.-_*+?[]^$\(){}|:019é", max_size=9)


def results_without_re2(
    patterns: list[str], names: list[str]
) -> tuple[list[bool], dict[str, frozenset[str]]]:
    """Return which patterns are valid, and their matches, as if google-re2 were absent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "re2", None)
        return [valid(pattern) for pattern in patterns], matching(patterns, names)


def valid(pattern: str) -> bool:
    try:
        validate(pattern)
    except GroupError:
        return False
    return True


@needs_re2
@settings(max_examples=depth.examples(600), deadline=None)
@given(SUBSET, SOME_NAMES)
def test_subset_is_read_as_re2_reads_it(pattern: str, names: list[str]) -> None:
    understood, found = results_without_re2([pattern], names)
    assert understood == [valid(pattern)]
    assert found == matching([pattern], names)


@needs_re2
@settings(max_examples=depth.examples(600), deadline=None)
@given(st.lists(ANYTHING, min_size=1, max_size=5), SOME_NAMES)
def test_no_expression_is_accepted_that_re2_refuses(patterns: list[str], names: list[str]) -> None:
    """An expression that is accepted without google-re2 is accepted with it, and matches the same."""
    understood, found = results_without_re2(patterns, names)
    everywhere = matching(patterns, names)
    for pattern, is_understood in zip(patterns, understood, strict=True):
        assert valid(pattern) or not is_understood
        assert found[pattern] == (everywhere[pattern] if is_understood else frozenset())


@needs_re2
@settings(max_examples=depth.examples(300), deadline=None)
@given(st.lists(ANYTHING, min_size=1, max_size=9), SOME_NAMES)
def test_expressions_match_together_as_alone(patterns: list[str], names: list[str]) -> None:
    assert matching(patterns, names) == {p: matching([p], names)[p] for p in patterns}
