"""Reads and writes the bytes of Kafka's messages, records and batches.

Knows no API, socket or file. `schema` declares messages, `compile` generates a reader and a writer for
each version, `batches` is the record batch (magic 2), `compression` its five codecs.
"""
