"""GPU samples from outside a trace: logs of `nvidia-smi`, `nvidia-smi dmon`, `dcgmi dmon`, DCGM.

Open ``log`` first: a log as a ``Source``, or beside a trace. ``rows`` takes lines apart, ``layouts`` those
screens that have no line for each sample.
"""
