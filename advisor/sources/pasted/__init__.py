"""Tables that `nsys stats` printed, pasted or saved, and those of the PyTorch profiler.

Open ``printed_tables`` first: a text in, its tables out. ``headings`` knows what columns mean, ``locales``
how numbers are written, ``header`` and ``wrapped`` how lines are divided, ``markup`` takes tables out of web
pages. ``timeline`` reads lists with times, ``profiler_sums`` tables of the PyTorch profiler; ``other_tools``
names what is not read.
"""
