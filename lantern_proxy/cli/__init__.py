"""The terminal: `lantern`, one module per command, with click and rich."""
