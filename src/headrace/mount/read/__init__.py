"""Files open for reading, and bytes fetched before they are asked for."""
