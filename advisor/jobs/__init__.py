"""The ranks of one job: which captures belong together, their common clock, and which waits for which.
Takes the conclusions from each capture and one row a collective; reads no trace.

Open ``job`` first: summaries of all ranks in, conclusions about their job out. ``reduction`` makes the
summary of one capture, ``align`` gives all one clock, ``match`` and ``pattern`` find which calls are one
collective, ``waiting`` tells waiting from transfer, ``late_ranks`` and ``late_group`` name who is late and
why.
"""
