"""Values of many samples by columns: slices of buffers, typed columns, stacking."""
