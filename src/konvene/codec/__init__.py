"""Bytes and values: how Kafka's messages, records and batches are read and written.

Nothing in here knows an API, a socket or a file. `schema` has the words in which a
message is declared, `compile` turns a declaration and a version into a reader and a
writer, `batches` is the record batch (magic 2), `compression` its five codecs.
"""
