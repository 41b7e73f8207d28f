"""Facts and rule files in, outcomes with their explanation out. Reads no trace.

Open ``infer`` first: it runs a rule set. ``load`` reads rule files, ``lint`` checks them against the
catalogues, ``compile`` orders them into strata, ``interpret`` defines what they mean, ``durable`` is the
adapter of durable-rules, ``conclude`` and ``rank`` turn outcomes into advice,
``reasons`` says why and why not, ``cases`` runs the examples beside the rules.
"""
