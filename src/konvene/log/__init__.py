"""The partition logs of a broker: record batches on disk, in Kafka's file formats.

`disk.files` is the only access to the file system (the simulator replaces it), `segment` is one `.log` file
with its indexes, `partition` the log of one partition, `directory` everything under one `log.dir`, `recovery`
the rules after a crash, `producers` the idempotence state. Nothing is asynchronous: one thread appends and
reads, and `sync()` is the only call that another thread may make.
"""
