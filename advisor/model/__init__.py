"""Frozen types that every stage shares. Imports nothing else of the package."""
