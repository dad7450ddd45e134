"""Small objects, or text, into shards, and back. See README.md in this folder."""

from headrace.pack.options import PackOptions
from headrace.pack.packing import Packed, pack
from headrace.pack.schema import read_schema
from headrace.pack.unpacking import Unpacked, unpack

__all__ = ["PackOptions", "Packed", "Unpacked", "pack", "read_schema", "unpack"]
