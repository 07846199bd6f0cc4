"""Commands that write and read records: `konvene produce` and `konvene consume`."""
