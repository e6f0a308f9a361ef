"""Fusion groups and tiles as immutable values, edits on them, and legality with reasons."""
