"""Storage: batches on disk, in Kafka's own files. Knows batches, never groups.

`files` is the one door to the disk (a simulator walks in through it), `segment` one `.log`
file and its indexes, `partition` the log of one partition, `directory` everything under one
`log.dir`, `recovery` what is done after a crash, `producers` who has written what
already. Nothing in here is asynchronous: appends and reads are plain calls of one thread,
and `sync()` is the only call meant for another one.
"""
