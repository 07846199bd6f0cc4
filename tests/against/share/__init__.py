"""Share groups (KIP-932) of real clients: Java's KafkaShareConsumer and confluent-kafka's ShareConsumer.

| file | theme |
| --- | --- |
| test_acknowledging.py | what members say of records, one by one or without a word |
| test_members.py | members of different libraries on one partition; one that dies, and one that sleeps |
| test_deliveries.py | locks that end, records that are given up, transactions, where a group begins |
| test_dead_letters.py | what is given up is copied to another topic |
| test_offsets.py | where a group stands, told, moved and forgotten by administrators |
| test_kills.py | the broker is killed under load: a ledger of every record |
"""
