"""Files for other viewers: exact overlays, made from the trace itself.

Open ``overlay`` first: findings, gaps and steps as tracks for Perfetto. ``capture_tracks`` writes the
capture itself, ``trace_file`` and ``packets`` the protobuf that both need. ``excerpts`` cuts the events
that the HTML page draws.
"""
