"""Readers of Nsight Systems exports.

Open ``table_map`` first: which of their columns fill which of ours. ``export`` reads SQLite, ``columnar``
Parquet and Arrow; ``metadata`` finds tool, options and devices, ``samples`` GPU metrics, ``payloads`` the
sizes of collectives.
"""
