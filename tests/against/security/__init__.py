"""Real clients of a secured broker: each user has the rights that Kafka documents for its work, and no
others.

The options of each library are those of `konvene.testing`, so that what a test's broker hands to its clients
is proven here as well. With `KONVENE_AGAINST=kafka` the broker is Apache Kafka with its `StandardAuthorizer`.

| file | theme |
| --- | --- |
| test_rights.py | groups of every type and transactions: a missing right is the client's error |
| test_logins.py | PLAIN, SCRAM, OAUTHBEARER, mutual TLS; bad certificates |
| test_changing_rights.py | rights that are revoked and given back while clients work; ACLs of others |
| test_kills.py | the broker is killed in the middle of a group and of transactions |
| test_sessions.py | sessions of two seconds under load; sessions.py runs for longer from the command line |
| test_tools.py | Kafka's tools with `--command-config` |
"""
