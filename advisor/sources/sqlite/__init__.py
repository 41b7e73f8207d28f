"""Columns out of an SQLite file, fast."""
