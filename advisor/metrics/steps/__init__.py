"""Steps: the GPU work that one pass of the serving or training loop launched."""
