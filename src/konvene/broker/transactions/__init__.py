"""The transaction coordinators of a broker, verification of writes, and the end of hanging transactions."""
