"""Decodes the bytes of logs into Arrow columns: opens no files and does not import Spark.

`batches` finds the batches in a buffer, `records` the records in these, `bronze` makes a table of them,
`typed` a table of each record type. What cannot be read becomes a row with the reason.
"""
