"""The last stage: what samples, the order of the kernels and the spread of the steps add.

Open ``stage`` first: `Profiled`, `measure`, which runs all stages, and what facts, gains and reports are
made of. The other modules make its parts, or measure what needs them.
"""
