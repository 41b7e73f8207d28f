"""The tables of `advisor stats`."""
