"""Readers: capture file -> `Trace`. They compute and judge nothing.

Open ``trace`` first: what a reader gives (``Source``, ``Trace``). ``schema`` lists the tables and columns
that all fill, ``open`` recognises a path and chooses the reader. ``nsys``, ``kineto``, ``samplers`` and
their kin read one format each; ``refused`` names files that are not read, and what to give instead.
"""
