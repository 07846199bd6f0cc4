"""Decodes the bytes of logs into Arrow columns: opens no files and does not import Spark.

`batches` finds the batches in a buffer, `records` the records in these; `bronze` makes a table of the
records, and `typed` a table of each record type. Undecodable data becomes a row of `quarantine` with the
reason.
"""
