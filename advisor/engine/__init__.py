"""Facts and rule files in, outcomes with their explanation out. Reads no trace.

``load`` reads rule files, ``lint`` checks them against the catalogues, ``compile`` orders them into
strata, ``interpret`` defines what they mean, ``durable`` is the adapter of durable-rules,
``infer`` runs a rule set, ``conclude`` and ``rank`` turn outcomes into advice, ``reasons`` says
why and why not, ``cases`` runs the examples beside the rules.
"""
