"""Tools for agents: the verbs with bounded answers, and a server for them."""
