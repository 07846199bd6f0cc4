"""Transcripts: scenarios and traces, which record and replay a coordinator's requests as text."""
