"""Reader of PyTorch profiler traces.

Open ``reader`` first: the ``Source``. ``decode`` turns JSON into events, ``pieces`` does so for files that do
not fit in memory, ``event_tables`` sorts events into our tables, ``columns`` makes their columns.
"""
