"""What processes tell those who operate them: traces, logs, and a dashboard that shows the metrics."""
