"""The work of each verb, end to end: the stages in their order.

Open ``inputs`` first, which says what paths and names stand for, then ``diagnose``: capture, trace, metrics,
facts, inference, document. ``document`` and ``verdict`` fill the sections of a diagnosis, ``ranks`` and
``workers`` do the same for the captures of a job, ``captures`` takes many, ``gate`` chooses among findings;
``compare``, ``explain``, ``doctor`` and ``stats`` are their verbs, ``record`` records for ``advisor run``,
``passes`` plans its next recording.
"""
