"""Files for other viewers: exact overlays, made from the trace itself."""
