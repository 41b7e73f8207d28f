"""GPU samples from outside a trace: logs of `nvidia-smi`, `nvidia-smi dmon`, `dcgmi dmon`, DCGM."""
