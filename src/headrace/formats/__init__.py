"""Samples inside larger objects: their index, and how they are read.

Imported on first use (PEP 562): who only lists what is there need not wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.formats.checksums.crc32c import crc32c as crc32c
    from headrace.formats.checksums.crc32c import masked as masked
    from headrace.formats.columns.buffer_slices import Pieces as Pieces
    from headrace.formats.columns.buffer_slices import Weighed as Weighed
    from headrace.formats.columns.stacking import Sample as Sample
    from headrace.formats.columns.stacking import collate as collate
    from headrace.formats.columns.stacking import collate_field as collate_field
    from headrace.formats.columns.stacking import join_rows as join_rows
    from headrace.formats.columns.stacking import own_arrays as own_arrays
    from headrace.formats.columns.stacking import size_of as size_of
    from headrace.formats.columns.typed_columns import Forms as Forms
    from headrace.formats.columns.typed_columns import typed_batch as typed_batch
    from headrace.formats.columns.typed_columns import typed_columns as typed_columns
    from headrace.formats.compressed.compressed_samples import Decompressed as Decompressed
    from headrace.formats.index.index_job import Job as Job
    from headrace.formats.index.index_job import Packed as Packed
    from headrace.formats.index.index_job import Shard as Shard
    from headrace.formats.index.shard_bytes import StoreBytes as StoreBytes
    from headrace.formats.index.shard_bytes import reader_of as reader_of
    from headrace.formats.index.shard_index import ScannedShard as ScannedShard
    from headrace.formats.index.shard_index import find_set as find_set
    from headrace.formats.index.shard_index import index_bytes as index_bytes
    from headrace.formats.index.shard_index import index_members as index_members
    from headrace.formats.index.shard_index import put_scanned as put_scanned
    from headrace.formats.index.shard_index import scan_shards as scan_shards
    from headrace.formats.index.stored_index import INDEX_BESIDE as INDEX_BESIDE
    from headrace.formats.index.stored_index import export_index as export_index
    from headrace.formats.known_formats import FORMATS as FORMATS
    from headrace.formats.known_formats import PACKED as PACKED
    from headrace.formats.known_formats import compressed_suffixes as compressed_suffixes
    from headrace.formats.known_formats import format_named as format_named
    from headrace.formats.numpy_files.npy import LONGEST as LONGEST
    from headrace.formats.numpy_files.npy import fields_of as fields_of
    from headrace.formats.open_options import Columns as Columns
    from headrace.formats.open_options import OpenOptions as OpenOptions
    from headrace.formats.opening_targets import open_source as open_source
    from headrace.formats.opening_targets import shards_of_snapshot as shards_of_snapshot
    from headrace.formats.record_decoding import Records as Records
    from headrace.formats.recorded_index import keep_index as keep_index
    from headrace.formats.recorded_index import snapshot as snapshot
    from headrace.formats.recorded_index import take_with_index as take_with_index
    from headrace.formats.shard_format import Format as Format
    from headrace.formats.shard_format import Member as Member
    from headrace.formats.shard_samples import ShardSamples as ShardSamples
    from headrace.formats.shard_samples import records_of as records_of
    from headrace.formats.shard_samples import shard_format_of as shard_format_of
    from headrace.formats.tables.arrow_values import Values as Values
    from headrace.formats.tables.arrow_values import join as join
    from headrace.formats.tables.arrow_values import names_in as names_in
    from headrace.formats.tables.arrow_values import values_of as values_of
    from headrace.formats.tables.portable_row_groups import Groups as Groups
    from headrace.formats.tables.portable_row_groups import TablePart as TablePart
    from headrace.formats.tables.row_group import DecodedRows as DecodedRows
    from headrace.formats.tables.row_group import RowGroup as RowGroup
    from headrace.formats.tables.table_kind import OpenedTable as OpenedTable
    from headrace.formats.tables.table_samples import TableSamples as TableSamples
    from headrace.formats.tables.table_samples import as_table as as_table
    from headrace.formats.tar.tar import files_of as files_of
    from headrace.formats.tar.tar import split_name as split_name
    from headrace.formats.text.csv_records import CSV as CSV
    from headrace.formats.text.csv_records import csv_as as csv_as
    from headrace.formats.text.jsonl import JSONL as JSONL
    from headrace.formats.tfrecord.example import example as example
    from headrace.formats.tfrecord.example import examples as examples
    from headrace.formats.tfrecord.sequence_example import sequence as sequence
    from headrace.formats.tfrecord.sequence_example import stacked as stacked
    from headrace.formats.tfrecord.tfrecord import TFRECORD as TFRECORD
    from headrace.formats.tokens.megatron import Megatron as Megatron
    from headrace.formats.tokens.token_files import TokenFiles as TokenFiles
    from headrace.formats.tokens.token_files import check_fits as check_fits
    from headrace.formats.tokens.token_files import dtype_of as dtype_of
    from headrace.formats.tokens.token_files import tokens_as as tokens_as

__all__ = [
    "CSV",
    "FORMATS",
    "INDEX_BESIDE",
    "JSONL",
    "LONGEST",
    "PACKED",
    "TFRECORD",
    "Columns",
    "DecodedRows",
    "Decompressed",
    "Format",
    "Forms",
    "Groups",
    "Job",
    "Megatron",
    "Member",
    "OpenOptions",
    "OpenedTable",
    "Packed",
    "Pieces",
    "Records",
    "RowGroup",
    "Sample",
    "ScannedShard",
    "Shard",
    "ShardSamples",
    "StoreBytes",
    "TablePart",
    "TableSamples",
    "TokenFiles",
    "Values",
    "Weighed",
    "as_table",
    "check_fits",
    "collate",
    "collate_field",
    "compressed_suffixes",
    "crc32c",
    "csv_as",
    "dtype_of",
    "example",
    "examples",
    "export_index",
    "fields_of",
    "files_of",
    "find_set",
    "format_named",
    "index_bytes",
    "index_members",
    "join",
    "join_rows",
    "keep_index",
    "masked",
    "names_in",
    "open_source",
    "own_arrays",
    "put_scanned",
    "reader_of",
    "records_of",
    "scan_shards",
    "sequence",
    "shard_format_of",
    "shards_of_snapshot",
    "size_of",
    "snapshot",
    "split_name",
    "stacked",
    "take_with_index",
    "tokens_as",
    "typed_batch",
    "typed_columns",
    "values_of",
]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "checksums.crc32c": ("crc32c", "masked"),
            "columns.buffer_slices": ("Pieces", "Weighed"),
            "columns.stacking": ("Sample", "collate", "collate_field", "join_rows", "own_arrays", "size_of"),
            "columns.typed_columns": ("Forms", "typed_batch", "typed_columns"),
            "compressed.compressed_samples": ("Decompressed",),
            "index.index_job": ("Job", "Packed", "Shard"),
            "index.shard_bytes": ("StoreBytes", "reader_of"),
            "index.shard_index": (
                "ScannedShard", "find_set", "index_bytes", "index_members", "put_scanned", "scan_shards",
            ),
            "index.stored_index": ("INDEX_BESIDE", "export_index"),
            "known_formats": ("FORMATS", "PACKED", "compressed_suffixes", "format_named"),
            "numpy_files.npy": ("LONGEST", "fields_of"),
            "open_options": ("Columns", "OpenOptions"),
            "opening_targets": ("open_source", "shards_of_snapshot"),
            "record_decoding": ("Records",),
            "recorded_index": ("keep_index", "snapshot", "take_with_index"),
            "shard_format": ("Format", "Member"),
            "shard_samples": ("ShardSamples", "records_of", "shard_format_of"),
            "tables.arrow_values": ("Values", "join", "names_in", "values_of"),
            "tables.portable_row_groups": ("Groups", "TablePart"),
            "tables.row_group": ("DecodedRows", "RowGroup"),
            "tables.table_kind": ("OpenedTable",),
            "tables.table_samples": ("TableSamples", "as_table"),
            "tar.tar": ("files_of", "split_name"),
            "text.csv_records": ("CSV", "csv_as"),
            "text.jsonl": ("JSONL",),
            "tfrecord.example": ("example", "examples"),
            "tfrecord.sequence_example": ("sequence", "stacked"),
            "tfrecord.tfrecord": ("TFRECORD",),
            "tokens.megatron": ("Megatron",),
            "tokens.token_files": ("TokenFiles", "check_fits", "dtype_of", "tokens_as"),
        },
    )
