"""Readers: capture file -> `Trace`. They compute and judge nothing."""
