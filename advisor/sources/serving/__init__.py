"""What serving engines say about their load: lines of their logs, iteration statistics, metrics.

Open ``server`` first: any of these as a ``Source``. ``log_lines`` reads logs, ``metrics_text`` Prometheus,
``benchmarks`` the reports of load generators, whose numbers ``report_numbers`` finds.
"""
