"""Log compaction: keeps the last record of each key, as Kafka's `LogCleaner`.

    selection           which log to clean, and up to which offset; changes nothing
    offset_map          the last offset of each key, in bounded memory
    offset_map_builder  fills the map from the dirty part of a log
    transactions        which batches were aborted and which markers may be removed
    record_filter       which records of a batch remain, and the resulting bytes
    cleaning            one cleaning: reads segments and writes `.cleaned` files; the log stays unchanged
    segment_swap        replaces the old segments by the cleaned ones, atomically
    recovery            completes or undoes an interrupted swap at start
    worker              runs a cleaning in a process of its own

Files, names and rules are Kafka's, so that konvene completes an interrupted cleaning of Kafka, and vice
versa.
"""
