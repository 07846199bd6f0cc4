"""Who of a share group has which record, until when, and what became of it (KIP-932). Pure, in memory."""
