"""Share groups (KIP-932) of real clients: Java's KafkaShareConsumer and confluent-kafka's ShareConsumer.

| file | theme |
| --- | --- |
| test_acknowledging.py | explicit and implicit acknowledgements |
| test_members.py | members of different libraries on one partition; one that dies, one that is suspended |
| test_deliveries.py | lock timeouts, delivery count limit, transactions, start offsets |
| test_dead_letters.py | archived records are copied to a dead letter topic |
| test_offsets.py | group offsets are described, altered and deleted by administrators |
| test_kills.py | the broker is killed under load: a ledger of every record |
"""
