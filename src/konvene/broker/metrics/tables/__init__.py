"""The tables of metrics, one file per subject."""
