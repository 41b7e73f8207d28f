"""What a verb does, end to end: the stages in their order."""
