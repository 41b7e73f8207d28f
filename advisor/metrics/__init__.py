"""`Trace` in, small tables and scalars out: four stages, each a frozen record made of the one before.

Open ``profiled`` first: it runs all stages. ``loaded`` joins the tables of a capture; ``recording`` and
``stepped`` find the steps of a process on a device, start-up and the window; ``budgeted`` divides the window
of each device; ``profiled`` adds what samples, the order of kernels and the spread of steps tell. A metric
names the earliest stage that holds what it takes; one that a stage is made of takes the stage before, or
values. ``intervals`` is the algebra below all of it, ``limits`` holds judged numbers with their origin.
"""
