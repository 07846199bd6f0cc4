"""The options of `Krb5LoginModule`, and the library that may be missing."""

from __future__ import annotations

import sys

import pytest

from konvene.security.kerberos.contexts import acceptor, default_realm, initiator
from konvene.security.kerberos.login import KerberosLogin, broker_login, client_login
from konvene.security.sasl.jaas import parse_jaas

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = f'{MODULE} useKeyTab=true storeKey=true keyTab="/etc/k.keytab" principal="kafka/b@R"'


def test_a_broker_has_a_key_table() -> None:
    expected = KerberosLogin("kafka", "kafka/b@R", True, "/etc/k.keytab")
    assert broker_login(parse_jaas(f"{KEYTAB};"), "kafka") == expected
    assert broker_login(parse_jaas(f'{KEYTAB} serviceName="kafka";'), None) == expected


@pytest.mark.parametrize(
    ("jaas", "service_name", "message"),
    [
        (f"{KEYTAB};", None, "No serviceName defined in either JAAS or Kafka config"),
        (f"{KEYTAB} serviceName=a;", "b", "Conflicting serviceName values found in JAAS and Kafka configs"),
        (f"{MODULE} useKeyTab=true keyTab=k;", "kafka", "useKeyTab=true, keyTab and principal on a broker"),
        (f"{MODULE} useTicketCache=true;", "kafka", "useKeyTab=true, keyTab and principal on a broker"),
        (f"{MODULE} principal=p;", "kafka", "needs useKeyTab=true or useTicketCache=true"),
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required password="SECRET";',
            "kafka",
            "needs Krb5LoginModule, not PlainLoginModule",
        ),
    ],
)
def test_an_unusable_login_is_rejected(jaas: str, service_name: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        broker_login(parse_jaas(jaas), service_name)
    assert "SECRET" not in str(caught.value)


def test_a_client_may_use_a_ticket_cache() -> None:
    tickets = f"{MODULE} useTicketCache=true ticketCache=/tmp/tickets serviceName=kafka;"
    assert client_login(parse_jaas(tickets), None, None, None) == KerberosLogin(
        "kafka", ticket_cache="/tmp/tickets"
    )
    both = f"{KEYTAB} useTicketCache=true;"
    assert client_login(parse_jaas(both), "kafka", None, None).uses_keytab


def test_the_names_of_librdkafka() -> None:
    assert client_login(None, "kafka", None, None) == KerberosLogin("kafka")
    assert client_login(None, "kafka", "a@R", "/k") == KerberosLogin("kafka", "a@R", True, "/k")


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    login = KerberosLogin("kafka", "kafka/b@R", True, "/k")
    for call in (lambda: acceptor(login), lambda: initiator(login, "b"), default_realm):
        with pytest.raises(ValueError, match=r"pip install 'konvene\[gssapi\]'"):
            call()
