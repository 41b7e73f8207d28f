"""`Trace` in, small tables and scalars out. Pure functions that know no threshold.

Open ``analysis`` first: everything computed from one trace, each part once and only when asked for;
``analysed`` is what metrics take of it. ``operations`` joins GPU work to its calls, ``window`` and ``steps``
find what is analysed, ``budget`` divides it, ``intervals`` is the algebra below all of it. ``limits`` holds
judged numbers with their origin. Most others measure one subject for one module of ``facts``.
"""
