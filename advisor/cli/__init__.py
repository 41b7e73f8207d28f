"""Command line: thin modules of verbs, each imported only when a verb of it is used.

Open ``app`` first: it lists the verbs and their modules (``*_verbs``). ``options`` makes flags of
``Options`` and ``Settings``, ``deliver`` writes reports to their places, ``messages`` and ``main`` turn
errors into one line and an exit code. What a verb does is in ``pipeline``.
"""
