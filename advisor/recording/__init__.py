"""Recordings of a command: finding nsys, running it under watch, and the folder of runs.

Open ``record`` first: it makes one recording, again without what the machine refuses. ``nsys`` finds the
program and writes its command lines, ``watch`` runs it within limits and leaves nothing running, ``store``
keeps runs. ``torch_profiler`` records without nsys, by ``launcher`` in the Python of the program.
"""
