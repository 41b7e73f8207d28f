"""The HTML report: one self-contained file.

Open ``report`` first: it fills the ``templates``. ``charts`` draws.
"""
