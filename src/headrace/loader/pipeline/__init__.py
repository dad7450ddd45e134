"""What runs during an epoch: feeder, reads, decode threads, batches."""
