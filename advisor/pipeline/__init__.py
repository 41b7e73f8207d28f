"""The work of each verb, end to end: the stages in their order.

Open ``diagnose`` first: capture, trace, metrics, facts, inference, document. ``document`` and ``verdict``
fill the sections of a diagnosis, ``ranks`` and ``workers`` do the same for the captures of a job;
``compare``, ``explain`` and ``doctor`` are their verbs, ``record`` records for ``advisor run``, ``passes``
plans its next recording.
"""
