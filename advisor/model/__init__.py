"""Frozen types that every stage shares. Imports nothing else of the package.

Open ``findings`` first: ``Diagnosis``, the document that all reports are made from. ``rules`` is what one
rule file may hold, ``facts`` what rules are judged by, ``gain`` what fixes win; ``options`` declares every
option once and ``numbers`` turns values into text.
"""
