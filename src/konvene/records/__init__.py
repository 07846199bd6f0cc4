"""What each log says, declared with the words of `codec.schema`.

`GROUP_RECORDS`, `SHARE_STATE_RECORDS`, `TRANSACTION_RECORDS` and `METADATA_RECORDS` are the tables of the
four logs: record type to declarations. `coordinator` reads and writes the envelope that stands around
coordinator records (the type in front of the key, the version in front of the value).

Which version a value is written in is a row here too (`WRITTEN_VERSION`), as Kafka 4.4 writes it.
"""
