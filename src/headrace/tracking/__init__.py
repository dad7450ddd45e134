"""What is known of runs: their record, logs, metrics and the reason the GPU waits."""
