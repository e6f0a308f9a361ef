"""One file a command; no Qt."""
