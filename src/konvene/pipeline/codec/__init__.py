"""The bytes of logs as columns of Arrow: no file is opened here, and no Spark is known.

A buffer comes in, whoever holds it. `batches` finds the batches in it, `records` the records in these,
`bronze` makes a table of them, `typed` a table of each record type. What cannot be read becomes a row that
says why.
"""
