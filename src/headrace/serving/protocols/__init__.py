"""Bytes into tensors and back, a module a protocol. Nothing here waits, and nothing knows of sockets or models.

Whatever a request gets wrong is an `InputError` that names the field.
"""
