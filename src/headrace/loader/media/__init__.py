"""Video and audio, decoded through PyAV, from bytes or from objects that are read in part."""
