"""Compaction: of all records with one key the last one is kept, and of a log what somebody may still ask for.

    choosing       which log is to be cleaned, and how far; pure
    offset_map     the last offset of each key, in bounded memory
    transactions   which batches were aborted, and which markers may go
    filtering      which records of a batch stay, and the bytes that it is then
    cleaning       one cleaning: reads segments, writes `.cleaned` files; touches no log
    swapping       puts them in the place of the segments that they were made of, all or nothing

The files, their names and the rules are Kafka's (its `LogCleaner`), so that either broker goes on with what
the other one has begun.
"""
