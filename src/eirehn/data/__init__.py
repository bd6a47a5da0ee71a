"""Data sets: made, or read from files."""
