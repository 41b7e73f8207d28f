"""The tables of `advisor stats`.

Open ``reports`` first: it lists the tables by name. ``summaries`` has those of `nsys stats`, ``launch`` joins
kernels to the calls that launched them, ``spread`` says how durations are spread.
"""
