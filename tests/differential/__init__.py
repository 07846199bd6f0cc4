"""Differential tests: play one conversation with Apache Kafka and with konvene, compare responses by field.

`conversations/*/*.txt` are written by hand; random walks (`walks.py`) are generated from a seed. Kafka's
responses are stored in `recorded/`, so the default run needs no Java. `KONVENE_DIFFERENTIAL` is the mode:

    (not set)   play against konvene, compare with the recording
    record      play against both, compare, and rewrite the recording
    live        play against both and compare; KONVENE_DIFFERENTIAL_SEEDS=1000-1100 selects seeds of walks

`KONVENE_DIFFERENTIAL_ONLY=static` selects conversations by a substring of their profile and name.
`KONVENE_DIFFERENTIAL_BESIDE=kafka` replaces konvene by a second Kafka in each mode: differences found then
are nondeterminism of Kafka. Kafka's jars are located as in `tests/against/brokers.py`. A difference is a bug,
unless `differences.py` lists it with its reason.
"""
