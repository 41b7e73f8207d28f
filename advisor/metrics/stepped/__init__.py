"""The second stage: the steps of one process on one device, start-up, and the window that is analysed.

Open ``stage`` first: `Stepped`, and the function that makes it. ``recording`` has the steps alone, by which
two recordings are lined up (``pairing``). The other modules make its parts, or measure what needs no
budget.
"""
