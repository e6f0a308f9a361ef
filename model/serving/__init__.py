"""From a plan's demand profile to queueing, placement and the tail."""
