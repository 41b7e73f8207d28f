"""Expert knowledge: the files of `knowledge/`, validated."""
