"""`.npy` and `.npz` files."""
