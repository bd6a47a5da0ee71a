"""Data sets: generated, or read from files."""
