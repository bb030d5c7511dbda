"""Schema steps of what Lantern keeps on disk, append only."""
