"""Runs against runs: before and after, short and long context, engines, routers.

Open ``before_after`` first: the whole comparison, from the diagnoses of both sides to one document.
``step_work`` says what a step does, ``sides`` gathers the captures of a side, ``statistics`` puts an interval
on a change, ``comparability`` checks whether the sides may be compared, ``change_facts`` has them judged by
``rules/comparison``. ``baseline`` tells new findings from known ones; ``context``, ``frameworks`` and
``router`` are the other questions.
"""
