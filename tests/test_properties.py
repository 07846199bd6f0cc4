"""Java's properties text is read as java.util.Properties reads it, and each entry knows its line."""

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


def test_every_form_of_line() -> None:
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


def test_an_entry_knows_where_it_starts() -> None:
    """Natural lines are counted from 1, whatever ends them; a continued entry has its first."""
    entries = parse_properties("a=1\r\n\r\nb=\\\r2\nc=3", "my.properties")
    assert [(entry.key, entry.value, entry.where) for entry in entries] == [
        ("a", "1", "my.properties:1"),
        ("b", "2", "my.properties:3"),
        ("c", "3", "my.properties:5"),
    ]


def test_two_backslashes_do_not_continue_a_line() -> None:
    """An even number of them is that many halves, and the line ends."""
    assert [entry[:2] for entry in parse_properties("a=x\\\\\nb=y\\\\\\\nz")] == [("a", "x\\"), ("b", "y\\z")]


def test_a_line_that_goes_on_into_nothing_ends() -> None:
    """A backslash at the end of the text joins nothing."""
    assert [entry[:2] for entry in parse_properties("a=b\\")] == [("a", "b")]
    assert parse_properties("\\") == ()


@pytest.mark.parametrize("bad", ["\\u12", "\\uzzzz", "\\u"])
def test_a_broken_escape_names_its_line(bad: str) -> None:
    """The only thing that is not a properties file is half a \\u."""
    with pytest.raises(UnreadableProperties, match=r"^server\.properties:2: .*four hexadecimal digits"):
        parse_properties(f"a=1\nb={bad}\n")


@given(st.text())
def test_any_text_reads_or_is_refused(text: str) -> None:
    """Nothing but UnreadableProperties escapes."""
    with suppress(UnreadableProperties):
        parse_properties(text)


def _escaped(text: str) -> str:
    """As java.util.Properties would store it."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@given(st.lists(st.tuples(st.text(min_size=1), st.text())))
def test_what_is_stored_escaped_is_read_back(pairs: list[tuple[str, str]]) -> None:
    """Any keys and values survive being written as \\u escapes."""
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in pairs)
    assert [entry[:2] for entry in parse_properties(text)] == pairs


def test_the_last_value_of_a_key_counts() -> None:
    """Separators, escapes and continuations of one file."""
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
