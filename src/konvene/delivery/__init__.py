"""Delivery of a share partition's records: acquisition, locks, acknowledgement (KIP-932). Pure, in memory."""
