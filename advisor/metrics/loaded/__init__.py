"""The first stage: the tables of a capture, GPU work joined to its calls and names, what is missing of it.

Open ``stage`` first: `Loaded`, and the function that makes it. The other modules make its parts, or measure
what needs no more: ``integrity`` rows that cannot be, ``idle_threads`` what host threads do.
"""
