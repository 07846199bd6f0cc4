"""Transcripts: conversations with a coordinator as text, played and recorded."""
