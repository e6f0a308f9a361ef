"""Searches for plans: what to choose where the user left it open."""
