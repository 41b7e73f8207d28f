"""Columns out of an SQLite file, fast.

Open ``pages`` first: integer columns through SQL, or quicker from the pages themselves. ``leaf_pages``
decodes these with NumPy, ``_pages.c`` compiled; ``file`` opens a file without writing to it.
"""
