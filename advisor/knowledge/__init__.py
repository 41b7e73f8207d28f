"""What an expert carries in the head: the files of `knowledge/`, validated."""
