"""Command line: one thin module a verb, imported only when the verb is used."""
