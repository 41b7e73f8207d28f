"""How captures were recorded, what they can answer, and the command that records a better one.

Open ``goals`` first: it turns a goal and an engine into a plan. ``planner`` chooses the command that lets
most rules run, ``nsys_options`` knows the options of nsys by release, ``request`` resolves the names of a
request. ``redact`` and its parts write copies, and read captures, without private data.
"""
