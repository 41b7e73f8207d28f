"""Metrics in, facts out: named, typed, scoped scalars with unit and provenance. Holds no rule.

Open ``catalog`` first: it lists the modules and builds all facts of a capture. Each module computes one
subject (``device``, ``host``, ``copies``, ``communication`` ...) and writes what the file of the same name in
``knowledge/facts/`` declares; ``writer`` collects the values, ``needs`` says why one is missing. A new fact
has a value in ``tests/facts/test_values.py``.
"""
