"""Steps: the GPU work that one pass of the serving or training loop launched.

Open ``find`` first: it weighs the evidence and chooses. ``model`` is what a step is, ``ranges`` finds steps
by their NVTX ranges, ``sequence`` by what repeats, ``apart`` by the pauses between them.
"""
