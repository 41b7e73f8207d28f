"""Recordings of a command: finding nsys, running it under watch, and the folder of runs."""
