"""The work of each verb, end to end: the stages in their order."""
