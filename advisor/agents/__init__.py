"""Tools for agents: the verbs with bounded answers, and a server for them.

Open ``tools`` first: one function a verb, of texts and numbers. ``server`` offers them over the Model
Context Protocol. A change to an answer belongs in the verb's own module; here it is only cut to size.
"""
