"""What there is: listings, snapshots, manifests, pins, grouping, quality.

Imported on first use (PEP 562): who only lists what is there need not wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.catalog.dataset_names import target_of as target_of
    from headrace.catalog.diff_cache import Differing as Differing
    from headrace.catalog.diff_cache import kept_diff as kept_diff
    from headrace.catalog.files_by_name import copy as copy
    from headrace.catalog.files_by_name import files_named as files_named
    from headrace.catalog.files_by_name import usage as usage
    from headrace.catalog.folder_classes import CLASSES_FORMAT as CLASSES_FORMAT
    from headrace.catalog.folder_classes import LAST_ROW as LAST_ROW
    from headrace.catalog.folder_classes import MOST_CLASSES as MOST_CLASSES
    from headrace.catalog.folder_classes import OUTSIDE_ALL as OUTSIDE_ALL
    from headrace.catalog.folder_classes import Class as Class
    from headrace.catalog.folder_classes import Classes as Classes
    from headrace.catalog.folder_classes import Places as Places
    from headrace.catalog.folder_classes import mapped_classes as mapped_classes
    from headrace.catalog.folder_classes import open_classes as open_classes
    from headrace.catalog.index_cache import Shelf as Shelf
    from headrace.catalog.key_columns import column_pieces as column_pieces
    from headrace.catalog.key_columns import folders_of as folders_of
    from headrace.catalog.lazy_samples import LazySamples as LazySamples
    from headrace.catalog.lazy_samples import lazy_of as lazy_of
    from headrace.catalog.listed_places import Listing as Listing
    from headrace.catalog.listed_places import Place as Place
    from headrace.catalog.listed_places import find_again as find_again
    from headrace.catalog.listed_places import find_place as find_place
    from headrace.catalog.listed_places import listed_here as listed_here
    from headrace.catalog.listed_places import recent_objects as recent_objects
    from headrace.catalog.manifest import MANIFEST_SCHEMA as MANIFEST_SCHEMA
    from headrace.catalog.manifest import page_batch as page_batch
    from headrace.catalog.manifest import read_manifest as read_manifest
    from headrace.catalog.node_copies import evict as evict
    from headrace.catalog.node_copies import evict_to as evict_to
    from headrace.catalog.node_copies import load as load
    from headrace.catalog.node_copies import pin as pin
    from headrace.catalog.node_copies import refresh as refresh
    from headrace.catalog.object_index import Objects as Objects
    from headrace.catalog.object_samples import ObjectSamples as ObjectSamples
    from headrace.catalog.pins import INPUTS_VARIABLE as INPUTS_VARIABLE
    from headrace.catalog.pins import MANIFEST as MANIFEST
    from headrace.catalog.pins import Pin as Pin
    from headrace.catalog.pins import differences as differences
    from headrace.catalog.pins import is_pin_name as is_pin_name
    from headrace.catalog.pins import open_pin as open_pin
    from headrace.catalog.pins import pin_objects as pin_objects
    from headrace.catalog.pins import take_again as take_again
    from headrace.catalog.pins import take_pin as take_pin
    from headrace.catalog.portable_objects import NamedObject as NamedObject
    from headrace.catalog.portable_objects import Origin as Origin
    from headrace.catalog.portable_objects import as_reads as as_reads
    from headrace.catalog.portable_objects import entry_words as entry_words
    from headrace.catalog.portable_objects import objects_below as objects_below
    from headrace.catalog.portable_objects import reads_below as reads_below
    from headrace.catalog.prefix_listing import list_objects as list_objects
    from headrace.catalog.quality import Report as Report
    from headrace.catalog.quality import SampleGroup as SampleGroup
    from headrace.catalog.quality import quality_report as quality_report
    from headrace.catalog.record_keys import KEY as KEY
    from headrace.catalog.record_keys import OWN_KEY as OWN_KEY
    from headrace.catalog.record_keys import RESERVED_FIELDS as RESERVED_FIELDS
    from headrace.catalog.record_keys import GivesKeys as GivesKeys
    from headrace.catalog.record_keys import key_of as key_of
    from headrace.catalog.record_keys import keys_of as keys_of
    from headrace.catalog.sample_abilities import Abilities as Abilities
    from headrace.catalog.sample_abilities import CachedSamples as CachedSamples
    from headrace.catalog.sample_abilities import IndexFolder as IndexFolder
    from headrace.catalog.sample_abilities import Ints as Ints
    from headrace.catalog.sample_abilities import Ranged as Ranged
    from headrace.catalog.sample_abilities import Ranges as Ranges
    from headrace.catalog.sample_grouping import check_kind as check_kind
    from headrace.catalog.sample_grouping import open_groups as open_groups
    from headrace.catalog.sample_index import LIST_AGAIN as LIST_AGAIN
    from headrace.catalog.sample_index import Part as Part
    from headrace.catalog.sample_index import Rows as Rows
    from headrace.catalog.sample_index import SampleIndex as SampleIndex
    from headrace.catalog.sample_index import SampleSpec as SampleSpec
    from headrace.catalog.snapshot import LATEST as LATEST
    from headrace.catalog.snapshot import Snapshot as Snapshot
    from headrace.catalog.snapshot import list_snapshots as list_snapshots
    from headrace.catalog.snapshot import open_snapshot as open_snapshot
    from headrace.catalog.snapshot import snapshot_objects as snapshot_objects
    from headrace.catalog.snapshot import snapshot_place as snapshot_place
    from headrace.catalog.snapshot import take_snapshot as take_snapshot
    from headrace.catalog.snapshot_diff import Change as Change
    from headrace.catalog.snapshot_diff import ChangeKind as ChangeKind
    from headrace.catalog.snapshot_diff import change_summary as change_summary
    from headrace.catalog.snapshot_diff import diff as diff
    from headrace.catalog.snapshot_diff import verify as verify
    from headrace.catalog.stages import ANY_NUMBER as ANY_NUMBER
    from headrace.catalog.stages import Stage as Stage
    from headrace.catalog.stages import TakesColumns as TakesColumns
    from headrace.catalog.stored_object import StoredObject as StoredObject

__all__ = [
    "ANY_NUMBER",
    "CLASSES_FORMAT",
    "INPUTS_VARIABLE",
    "KEY",
    "LAST_ROW",
    "LATEST",
    "LIST_AGAIN",
    "MANIFEST",
    "MANIFEST_SCHEMA",
    "MOST_CLASSES",
    "OUTSIDE_ALL",
    "OWN_KEY",
    "RESERVED_FIELDS",
    "Abilities",
    "CachedSamples",
    "Change",
    "ChangeKind",
    "Class",
    "Classes",
    "Differing",
    "GivesKeys",
    "IndexFolder",
    "Ints",
    "LazySamples",
    "Listing",
    "NamedObject",
    "ObjectSamples",
    "Objects",
    "Origin",
    "Part",
    "Pin",
    "Place",
    "Places",
    "Ranged",
    "Ranges",
    "Report",
    "Rows",
    "SampleGroup",
    "SampleIndex",
    "SampleSpec",
    "Shelf",
    "Snapshot",
    "Stage",
    "StoredObject",
    "TakesColumns",
    "as_reads",
    "change_summary",
    "check_kind",
    "column_pieces",
    "copy",
    "diff",
    "differences",
    "entry_words",
    "evict",
    "evict_to",
    "files_named",
    "find_again",
    "find_place",
    "folders_of",
    "is_pin_name",
    "kept_diff",
    "key_of",
    "keys_of",
    "lazy_of",
    "list_objects",
    "list_snapshots",
    "listed_here",
    "load",
    "mapped_classes",
    "objects_below",
    "open_classes",
    "open_groups",
    "open_pin",
    "open_snapshot",
    "page_batch",
    "pin",
    "pin_objects",
    "quality_report",
    "read_manifest",
    "reads_below",
    "recent_objects",
    "refresh",
    "snapshot_objects",
    "snapshot_place",
    "take_again",
    "take_pin",
    "take_snapshot",
    "target_of",
    "usage",
    "verify",
]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "dataset_names": ("target_of",),
            "diff_cache": ("Differing", "kept_diff"),
            "files_by_name": ("copy", "files_named", "usage"),
            "folder_classes": (
                "CLASSES_FORMAT",
                "Class",
                "Classes",
                "LAST_ROW",
                "MOST_CLASSES",
                "OUTSIDE_ALL",
                "Places",
                "mapped_classes",
                "open_classes",
            ),
            "index_cache": ("Shelf",),
            "key_columns": ("column_pieces", "folders_of"),
            "lazy_samples": ("LazySamples", "lazy_of"),
            "listed_places": ("Listing", "Place", "find_again", "find_place", "listed_here", "recent_objects"),
            "manifest": ("MANIFEST_SCHEMA", "page_batch", "read_manifest"),
            "node_copies": ("evict", "evict_to", "load", "pin", "refresh"),
            "object_index": ("Objects",),
            "object_samples": ("ObjectSamples",),
            "pins": (
                "INPUTS_VARIABLE",
                "MANIFEST",
                "Pin",
                "differences",
                "is_pin_name",
                "open_pin",
                "pin_objects",
                "take_again",
                "take_pin",
            ),
            "portable_objects": ("NamedObject", "Origin", "as_reads", "entry_words", "objects_below", "reads_below"),
            "prefix_listing": ("list_objects",),
            "quality": ("Report", "SampleGroup", "quality_report"),
            "record_keys": ("GivesKeys", "KEY", "OWN_KEY", "RESERVED_FIELDS", "key_of", "keys_of"),
            "sample_abilities": ("Abilities", "CachedSamples", "IndexFolder", "Ints", "Ranged", "Ranges"),
            "sample_grouping": ("check_kind", "open_groups"),
            "sample_index": ("LIST_AGAIN", "Part", "Rows", "SampleIndex", "SampleSpec"),
            "snapshot": (
                "LATEST",
                "Snapshot",
                "list_snapshots",
                "open_snapshot",
                "snapshot_objects",
                "snapshot_place",
                "take_snapshot",
            ),
            "snapshot_diff": ("Change", "ChangeKind", "change_summary", "diff", "verify"),
            "stages": ("ANY_NUMBER", "Stage", "TakesColumns"),
            "stored_object": ("StoredObject",),
        },
    )
