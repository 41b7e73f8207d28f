"""Reports: each renders a finished `Diagnosis` and uses nothing else."""
