"""JAAS configurations are parsed; classes other than the known ones are rejected by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.sasl.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_options_are_read() -> None:
    found = parse_jaas(f'{PLAIN} required username="alice" password=\'a b\' user_bob="x;y=z" debug=true;')
    assert found.name == "PlainLoginModule"
    assert found.options == {"username": "alice", "password": "a b", "user_bob": "x;y=z", "debug": "true"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('p="a\\"b"', 'a"b'),
        ('p="a\\\\b"', "a\\b"),
        ('p = "x"', "x"),
        ('\n  p="x"\n', "x"),
        ('/* c */ p="x" // d\n', "x"),
    ],
)
def test_quotes_comments_and_spaces(text: str, value: str) -> None:
    assert parse_jaas(f"{PLAIN} REQUIRED {text};").options == {"p": value}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("org.apache.kafka.common.security.scram.ScramLoginModule", "ScramLoginModule"),
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule", "OAuthBearerLoginModule"),
        ("com.sun.security.auth.module.Krb5LoginModule", "Krb5LoginModule"),
    ],
)
def test_known_modules(module: str, name: str) -> None:
    assert parse_jaas(f"{module} required;").name == name


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.example.LoginModule",
        "PlainLoginModule",
    ],
)
def test_other_modules_are_rejected_by_name(module: str) -> None:
    """CVE-2023-25194 and CVE-2025-27818: these connect to the servers that their options name."""
    with pytest.raises(ValueError, match=f"{module} is not supported"):
        parse_jaas(f'{module} required user.provider.url="ldap://evil";')


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f"{PLAIN} maybe;",
        f'{PLAIN} required a="b',
        f"{PLAIN} required a;",
        f"{PLAIN} required a=;",
        f"{PLAIN} required ==b;",
        f"{PLAIN} required; {PLAIN} required;",
    ],
)
def test_malformed_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"JAAS|option|flag|module"):
        parse_jaas(text)


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(parse_jaas(f'{PLAIN} required password="hush";'))
    for text in (f'{PLAIN} required password "hush";', f'{PLAIN} required password="hush'):
        with pytest.raises(ValueError, match=r"option|quote") as raised:
            parse_jaas(text)
        assert "hush" not in str(raised.value)


@given(st.text(max_size=100))
def test_any_text_is_rejected_with_a_value_error(text: str) -> None:
    for prefix in ("", f"{PLAIN} required "):
        try:
            parse_jaas(prefix + text)
        except ValueError:
            continue
