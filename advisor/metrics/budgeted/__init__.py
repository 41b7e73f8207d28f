"""The third stage: what each device did in its window, and what every part of the window was spent on.

Open ``stage`` first: `Budgeted`, and the function that makes it. ``budget`` divides the window, ``passes``
knows the kernels of one pass. The other modules measure one subject each for facts and gains.
"""
