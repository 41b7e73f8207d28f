"""What a fix would gain: the captured timeline replayed without the cause, as a range.

Open ``estimate`` first: step times with and without fixes, and how sure they are. ``extract`` makes the
inputs of a replay, ``replay`` runs them again, ``fixes``, ``fixes_host``, ``fixes_device`` and
``fixes_copies`` change them as ``knowledge/whatifs.yaml`` says. ``attach`` gives findings their gains;
``profiler`` takes its cost out.
"""
