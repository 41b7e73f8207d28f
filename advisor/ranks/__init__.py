"""The ranks of one job: which captures belong together, their common clock, and which waits for which.
Takes the conclusions from each capture and one row a collective; reads no trace.
"""
