"""Real clients in consumer groups (KIP-848): Java's and librdkafka's new members, alone, together, and beside
members that still speak the classic protocol.

The harness is that of the folder above, and so is the choice of the broker: `KONVENE_AGAINST=kafka` runs all
this against Apache Kafka. Only the broker's own settings are different: its bounds on sessions and heartbeats
are low, so that a test may kill a member and see the end of its session.

| file | theme |
| --- | --- |
| group.py | a group at work: who was a member, who must have what, and what was promised |
| test_members.py | members come, leave, die and sleep; commits; full groups; assignors |
| test_static_members.py | static members: bounced, removed for good, two at one desk |
| test_topics.py | topics that grow, go and come again; patterns |
| moves.py | a rolling upgrade and downgrade, played once and checked by many tests |
| test_migration.py | rolling upgrade and downgrade under traffic, eager, cooperative and static |
| test_restart.py | the broker is killed under a consumer group |
"""
