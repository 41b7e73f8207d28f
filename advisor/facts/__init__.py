"""Metrics in, facts out: named, typed, scoped scalars with unit and provenance. Holds no rule.

Open ``catalog`` first: it lists the modules and builds all facts of a capture. Each module computes one
subject (``device``, ``host``, ``copies``, ``communication`` ...); ``spec`` says how facts are declared and
collected, ``needs`` what they require of a capture. A new fact has a value in
``tests/facts/test_values.py``.
"""
