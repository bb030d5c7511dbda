"""From a request that lacks something to the block that restores it; `restorer.py` leads."""
