"""What other viewers open beside the capture: exact overlays, made from the trace itself."""
