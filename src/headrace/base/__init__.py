"""What every room shares: errors, units, settings, metrics, progress. Imports nothing of headrace."""
