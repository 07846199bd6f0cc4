"""Kerberos names and short names, golden against `KerberosShortNamer` of Kafka 4.4."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.kerberos.names import MAX_NAME_LENGTH, KerberosName, ShortNamer

SHORT_NAMES = [
    (
        "App.service-name/example.com@REALM.COM",
        (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"),
        "service-name",
    ),
    ("App.service-name@REALM.COM", (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"), "service-name"),
    ("user/host@REALM.COM", ("DEFAULT",), "user"),
    ("user@REALM.COM", ("DEFAULT",), "user"),
    ("user", ("DEFAULT",), "user"),
    ("user/host", ("DEFAULT",), "user/host"),
    ("@REALM.COM", ("DEFAULT",), ""),
    ("UsEr@REALM.COM", ("RULE:[1:$1]/L",), "user"),
    ("UsEr@REALM.COM", ("RULE:[1:$1]/U",), "USER"),
    ("UsEr@REALM.COM", ("RULE:[1:$1]L",), "user"),
    ("UsEr@REALM.COM", ("RULE:[1:$1]s/E/e/L",), "user"),
    ("UsEr@REALM.COM", ("RULE:[1:$1]s/E/e/g/U",), "USER"),
    ("user@REALM.COM", ("RULE:[1:$1;$0]",), "user;REALM.COM"),
    ("user@REALM.COM", ("RULE:[1:$1@$0]s/@.*//",), "user"),
    ("user@OTHER.COM", (r"RULE:[1:$1@$0](.*@OTHER\.COM)s/@.*/-other/", "DEFAULT"), "user-other"),
    ("user/host@OTHER.COM", ("RULE:[1:$1]", "RULE:[2:$2.$1]"), "host.user"),
    ("user@REALM.COM", ("RULE:[0:$0]", "RULE:[3:$1]", "DEFAULT"), "user"),
    ("user@REALM.COM", ("RULE:[1:$1](use)", "RULE:[1:$1](u.*r)s/u//"), "ser"),
    ("user@REALM.COM", ("RULE:[1:$1]()", "DEFAULT"), "user"),
    ("aabaa@REALM.COM", ("RULE:[1:$1]s/a/x/",), "xabaa"),
    ("aabaa@REALM.COM", ("RULE:[1:$1]s/a/x/g",), "xxbxx"),
    ("abxd@REALM.COM", ("RULE:[1:$1]s/x*/-/g",), "-a-b--d-"),
    ("user@REALM.COM", ("RULE:[1:$1]s/$/-x/g",), "user-x"),
    ("user@REALM.COM", (r"RULE:[1:$1]s/u(s)/\$$1$12/",), "$ss2er"),
    ("user@REALM.COM", ("RULE:[1:$1]s/(u)|(s)/<$2>/g",), "<><s>er"),
    ("ü@REALM.COM", (r"RULE:[1:$1](\w)", "DEFAULT"), "ü"),
]
"""Name, rules, and Kafka's result, with the default realm REALM.COM."""

ERRORS = [
    ("user@OTHER.COM", ("DEFAULT",), "No rules apply to user@OTHER.COM, rules [DEFAULT]"),
    ("user@OTHER.COM", (), "No rules apply to user@OTHER.COM, rules []"),
    ("a/b/c@REALM.COM", ("DEFAULT",), "Malformed Kerberos name: a/b/c@REALM.COM"),
    ("a@b@REALM.COM", ("DEFAULT",), "Malformed Kerberos name: a@b@REALM.COM"),
    (
        "user@REALM.COM",
        ("RULE:[1:$1@$0]",),
        "Non-simple name user@REALM.COM after auth_to_local rule RULE:[1:$1@$0]",
    ),
    ("user@REALM.COM", ("RULE:[1:$5]",), "index 5 from $5 is outside of the valid range 0 to 1"),
    ("user@REALM.COM", ("RULE:[1:$]",), "bad format in username mapping in "),
    ("user@REALM.COM", ("nope",), "Invalid rule: nope"),
    ("user@REALM.COM", ("",), "Invalid rule: "),
    ("user@REALM.COM", ("DEFAULT/L",), "Invalid rule: `DEFAULT/L`, unmatched substring: `/L`"),
    ("user@REALM.COM", ("RULE:[1:$1]/X",), "Invalid rule: `RULE:[1:$1]/X`, unmatched substring: `X`"),
    (
        "user@REALM.COM",
        ("RULE:[1:$1](a(b)c)",),
        "Invalid rule: `RULE:[1:$1](a(b)c)`, unmatched substring: `c)`",
    ),
]
"""Name, rules, and Kafka's message."""

INVALID_RULES = [
    "RULE:[:$1]",
    "RULE:[1:$1]s/(/x/",
    "RULE:[1:$1]s/u/$1/",
    "RULE:[1:$1]s/u/$/",
]
"""Rules that Kafka rejects with a message of Java's; some of them only when they are applied."""


@pytest.mark.parametrize(("name", "rules", "expected"), SHORT_NAMES)
def test_short_names_are_kafkas(name: str, rules: tuple[str, ...], expected: str) -> None:
    assert ShortNamer(rules, "REALM.COM").short_name(name) == expected


@pytest.mark.parametrize(("name", "rules", "expected"), SHORT_NAMES)
def test_short_names_without_re2(
    name: str, rules: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert ShortNamer(rules, "REALM.COM").short_name(name) == expected


@pytest.mark.parametrize(("name", "rules", "message"), ERRORS)
def test_messages_are_kafkas(name: str, rules: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ShortNamer(rules, "REALM.COM").short_name(name)
    assert str(caught.value) == message


@pytest.mark.parametrize("rule", INVALID_RULES)
def test_an_invalid_rule_is_rejected_at_once(rule: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule: "):
        ShortNamer([rule], "REALM.COM")


def test_patterns_that_re2_does_not_know() -> None:
    assert ShortNamer([r"RULE:[1:$1]s/(.)\1/x/"], "R").short_name("aab@R") == "xb"


def test_parts_of_a_name() -> None:
    assert KerberosName.parse("kafka/host@REALM.COM") == ("kafka", "host", "REALM.COM")
    assert KerberosName.parse("user@REALM.COM") == ("user", None, "REALM.COM")
    assert KerberosName.parse("user") == ("user", None, None)


def test_without_a_default_realm_the_default_rule_never_applies() -> None:
    with pytest.raises(ValueError, match="No rules apply"):
        ShortNamer(["DEFAULT"], "").short_name("user@REALM.COM")


def test_a_name_has_a_limit() -> None:
    with pytest.raises(ValueError, match="of 5000 characters"):
        ShortNamer(["DEFAULT"], "R").short_name("a" * 5000)
    assert len(ShortNamer(["DEFAULT"], "R").short_name("a" * MAX_NAME_LENGTH)) == MAX_NAME_LENGTH


@given(
    st.text(max_size=30),
    st.sampled_from(["DEFAULT", "RULE:[1:$1]", "RULE:[2:$1;$2]/L", "RULE:[1:$1]s/a/b/g"]),
)
def test_a_short_name_has_no_realm(name: str, rule: str) -> None:
    try:
        short = ShortNamer([rule], "R").short_name(f"{name}@R")
    except ValueError:
        return
    assert not {"/", "@"} & set(short)
