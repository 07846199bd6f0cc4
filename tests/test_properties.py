"""`parse_properties` reads a properties file as java.util.Properties does, with the line of each entry."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.properties import UnreadableProperties, parse_properties, properties_mapping

TEXT = r"""# a comment
   ! another \
key=value
spaced   =   out
colon: c
white space separates
empty=
bare
  indented = x = y
long = one, \
       two, \

after = 1
path=C:\\dir\ttab
\#odd\=key\: = v
uni\u0063ode = \u00e9\ud83d\ude00
trailing = kept  """


def test_every_line_syntax_is_parsed() -> None:
    """Comments, separators, continuations and escapes; trailing space belongs to the value."""
    assert [(entry.key, entry.value) for entry in parse_properties(TEXT)] == [
        ("key", "value"),
        ("spaced", "out"),
        ("colon", "c"),
        ("white", "space separates"),
        ("empty", ""),
        ("bare", ""),
        ("indented", "x = y"),
        ("long", "one, two, "),
        ("after", "1"),
        ("path", "C:\\dir\ttab"),
        ("#odd=key:", "v"),
        ("unicode", "é😀"),
        ("trailing", "kept  "),
    ]


def test_entry_has_the_number_of_its_first_line() -> None:
    """Lines are numbered from 1, with any line terminator; an entry may continue on further lines."""
    entries = parse_properties("a=1\r\n\r\nb=\\\r2\nc=3", "my.properties")
    assert [(entry.key, entry.value, entry.where) for entry in entries] == [
        ("a", "1", "my.properties:1"),
        ("b", "2", "my.properties:3"),
        ("c", "3", "my.properties:5"),
    ]


def test_two_backslashes_do_not_continue_a_line() -> None:
    """Each pair of backslashes is one backslash; only an odd one continues the line."""
    assert [entry[:2] for entry in parse_properties("a=x\\\\\nb=y\\\\\\\nz")] == [("a", "x\\"), ("b", "y\\z")]


def test_trailing_backslash_at_the_end_of_the_text_is_dropped() -> None:
    """There is no next line to continue with."""
    assert [entry[:2] for entry in parse_properties("a=b\\")] == [("a", "b")]
    assert parse_properties("\\") == ()


@pytest.mark.parametrize("bad", ["\\u12", "\\uzzzz", "\\u"])
def test_invalid_escape_is_rejected_with_its_line(bad: str) -> None:
    """An incomplete \\u escape is the only syntax error of a properties file."""
    with pytest.raises(UnreadableProperties, match=r"^server\.properties:2: .*four hexadecimal digits"):
        parse_properties(f"a=1\nb={bad}\n")


@given(st.text())
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    """UnreadableProperties is the only exception."""
    with suppress(UnreadableProperties):
        parse_properties(text)


def _escaped(text: str) -> str:
    """Escape every UTF-16 unit of a text as `\\uXXXX`, as java.util.Properties may store it."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@given(st.lists(st.tuples(st.text(min_size=1), st.text())))
def test_escaped_keys_and_values_round_trip(pairs: list[tuple[str, str]]) -> None:
    """Any keys and values written as \\u escapes are read back unchanged."""
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in pairs)
    assert [entry[:2] for entry in parse_properties(text)] == pairs


def test_last_value_of_a_repeated_key_wins() -> None:
    """`properties_mapping` of a file with separators, escapes, continuations and a repeated key."""
    text = "\n".join(
        [
            "# a comment", "! another", "", "a=1", "b : 2", "c 3", "  d\t=  four  five", "e=x\\", "   y",
            "f\\=g=h", "path=C:\\\\dir", "tab=\\t|", "u=\\u00e9", "empty=", "alone", "last=1", "last=2",
        ]
    )  # fmt: skip
    assert properties_mapping(text, "client.properties") == {
        "a": "1", "b": "2", "c": "3", "d": "four  five", "e": "xy", "f=g": "h", "path": "C:\\dir",
        "tab": "\t|", "u": "é", "empty": "", "alone": "", "last": "2",
    }  # fmt: skip
