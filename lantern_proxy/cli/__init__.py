"""The terminal: `lantern`, a command a module, with click and rich."""
