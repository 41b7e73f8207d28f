"""What an agent may ask: the verbs as tools with bounded answers, and a server for them."""
