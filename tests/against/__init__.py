"""Real clients against a broker: the proof that they need not change.

Java's client, confluent-kafka (librdkafka), kafka-python and aiokafka each run in a process of their own,
driven by JSON lines (drivers/driver.py has the protocol), against a broker in a process of its own
(brokers.py). Nothing here imports konvene, except for certificates and the options of clients: what holds
must hold on the wire, and the same tests run against Apache Kafka itself with `KONVENE_AGAINST=kafka`, which
is how they were written and how they are kept honest.

| file | theme |
| --- | --- |
| test_stories.py | the whole life of groups whose members are of different libraries |
| test_groups.py | members of different libraries in one group: they join, leave, die and sleep |
| test_assignors.py | the owner of every partition, at every moment, with every assignor of every library |
| test_static.py | static members: bounced, fenced, removed, mixed with others |
| test_streams.py | a Kafka Streams application: its topics, its tasks, its counts |
| test_protocols.py | groups of other protocol types, with raw requests (raw.py) |
| test_trouble.py | members that die or sleep too long, groups that are full |
| test_restart.py | the broker is killed under load and comes back |
| test_data.py | what is produced is read back, whole, by every other library |
| test_changes.py | topics that grow, go and come again under living clients |
| test_offsets.py | commits, positions, seeks, pauses, offsets for times |
| test_admin.py | topics, configs, groups and offsets through every admin client |
| test_tools.py | Kafka's own command line tools print the same for konvene as for Kafka |
| test_kills.py | fifty kills under load take nothing back |
| test_held_heartbeats.py | members whose heartbeats are held wait in peace, seen through a tap (tap.py) |
| test_history.py | konvene records why each of these rebalances happened |
| consumer_groups/ | the same for consumer groups (KIP-848), and for groups that change their protocol |
| streams_groups/ | Kafka Streams applications as streams groups (KIP-1071) |
| transactions/ | transactional producers of both protocols, exactly-once under kills, hanging transactions |
| share/ | share groups (KIP-932) of both libraries that have them |
| security/ | clients of a secured broker, each with the rights that it needs and no others |
| test_kafka_loads*.py | what konvene wrote, Apache Kafka loads, and goes on with |
"""
