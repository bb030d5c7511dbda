"""Real clients, driven through Lantern against a scripted upstream until they compact. `scripts/clients` runs it."""
