"""How captures were recorded, what they can answer, and the command that records a better one."""
