"""What serving engines say about their load: lines of their logs, iteration statistics, metrics."""
