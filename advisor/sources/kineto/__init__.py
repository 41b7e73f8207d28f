"""Reader of PyTorch profiler traces."""
