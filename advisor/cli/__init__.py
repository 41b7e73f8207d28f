"""Command line: thin modules of verbs, each imported only when a verb of it is used."""
