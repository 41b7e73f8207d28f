"""Runs against runs: before and after, short and long context, engines, routers.

``work`` says what a step does, ``sides`` gathers the captures of a side, ``statistics`` puts an
interval on a change, ``comparability`` checks whether the two sides may be compared. ``facts``
are the facts of a comparison, which the rules in ``rules/comparison`` judge; ``build``
puts the document together. ``context``, ``frameworks`` and ``router`` are the other questions.
"""
