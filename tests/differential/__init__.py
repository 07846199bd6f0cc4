"""The same conversations with Apache Kafka and with konvene, whose answers are compared field by field.

`conversations/*/*.txt` are written by hand, walks (`walks.py`) are made by chance from a seed. What Kafka
answered stands in `recorded/`, so that the default run needs no Java. Modes, by `KONVENE_DIFFERENTIAL`:

    (not set)   konvene is asked and compared with the recording
    record      Kafka is asked and the recording is written anew
    live        both are asked and compared; KONVENE_DIFFERENTIAL_SEEDS=1000-1100 walks as far as one likes

`KONVENE_DIFFERENTIAL_ONLY=static` chooses conversations by a part of their profile and name.
`KONVENE_DIFFERENTIAL_BESIDE=kafka` puts a second Kafka in konvene's place, in each mode: what differs then is
chance. Kafka's jars are found as in `tests/against/brokers.py`. A difference is a mistake, or stands in
`differences.py` with its reason.
"""
