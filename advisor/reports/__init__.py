"""Reports: each renders a finished `Diagnosis` and looks at nothing behind it."""
