"""Transactions of real clients: what is in one is seen whole or not at all, offsets included.

Java's client speaks the second protocol of transactions (KIP-890, `transaction.version` 2); Java's of 3.9,
librdkafka, kafka-python and aiokafka speak the first.

| file | theme |
| --- | --- |
| test_producers.py | every writer's transactions as every reader sees them; the broker killed in one |
| test_zombies.py | who was replaced, was too slow or is no member any more writes nothing |
| test_copies.py | consume, transform, produce: clients and the broker killed, every value copied once |
| test_streams.py | Kafka Streams with exactly_once_v2: instances and the broker killed, counts exact |
| test_hanging.py | hanging transactions are found and aborted, by Kafka's own tool |
"""
