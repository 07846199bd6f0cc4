"""Encodes and decodes Kafka's messages, records and record batches.

Declares no message itself, and opens no socket or file. `schema` is the declaration language of messages,
`compile` generates a reader and a writer for each version, `batches` is the record batch (magic 2), and
`compression` holds its five codecs.
"""
