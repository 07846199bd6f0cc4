"""Decodes the bytes of logs into Arrow columns: opens no files and does not import Spark.

`batches` finds the batches in a buffer, and `records` the records in a batch; `bronze` makes the table
`coordinator_record` of them, and `typed` a table for each record type. Undecodable data becomes a row of
`quarantine` with the reason.
"""
