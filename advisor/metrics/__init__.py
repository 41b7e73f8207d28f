"""`Trace` in, small tables and scalars out: four stages, each a frozen record made of the one before.

Open ``profiled`` first: its stage runs them all. ``loaded`` joins the tables of a capture, ``stepped``
finds the steps of a process on a device, start-up and the window, ``budgeted`` divides the window of each
device, ``profiled`` adds what samples, the order of kernels and the spread of steps tell. A folder holds
what its stage is made of, and metrics that need no later one. ``steps`` knows what a step is, ``intervals``
is the algebra below all of it, ``limits`` holds judged numbers with their origin, ``stats`` the tables of
`advisor stats`.
"""
