"""CRC-32C: of one stretch of bytes, and of many in one pass."""
