"""Order, pipeline, batches and state; adapters for PyTorch, TensorFlow and JAX.

Imported on first use (PEP 562): who only lists what is there need not wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.loader.adapters.torch import Tensors as Tensors
    from headrace.loader.adapters.torch import tensors as tensors
    from headrace.loader.adapters.torch_dataset import IterableDataset as IterableDataset
    from headrace.loader.adapters.torch_trainer import feed as feed
    from headrace.loader.adapters.torch_values import convert as convert
    from headrace.loader.benchmark import Epoch as Epoch
    from headrace.loader.benchmark import bench as bench
    from headrace.loader.column_classes import class_columns as class_columns
    from headrace.loader.column_classes import open_column_classes as open_column_classes
    from headrace.loader.dataset import Dataset as Dataset
    from headrace.loader.epoch_part import Source as Source
    from headrace.loader.epoch_part import Stretch as Stretch
    from headrace.loader.epoch_part import sizes_at as sizes_at
    from headrace.loader.joining_limits import MOST_JOINED as MOST_JOINED
    from headrace.loader.loader import Loader as Loader
    from headrace.loader.order.auto_block import decide_block as decide_block
    from headrace.loader.order.order import Ints as Ints
    from headrace.loader.order.order import Stream as Stream
    from headrace.loader.order.order import Take as Take
    from headrace.loader.order.order import straight as straight
    from headrace.loader.order.store_rates import BLOCKS_AT_ONCE as BLOCKS_AT_ONCE
    from headrace.loader.order.store_rates import Rate as Rate
    from headrace.loader.order.store_rates import measure as measure
    from headrace.loader.order.store_rates import rate_of as rate_of
    from headrace.loader.pipeline.bad_samples import Changed as Changed
    from headrace.loader.pipeline.bad_samples import Judge as Judge
    from headrace.loader.pipeline.bad_samples import Skip as Skip
    from headrace.loader.pipeline.bad_samples import Skipped as Skipped
    from headrace.loader.pipeline.feeder import mean_size as mean_size
    from headrace.loader.pipeline.stats import Stats as Stats
    from headrace.loader.recipe import dataset_of as dataset_of
    from headrace.loader.recipe import places_of as places_of
    from headrace.loader.shown.batch_shown import show as show
    from headrace.loader.shown.showing import LARGEST_SHOWN as LARGEST_SHOWN
    from headrace.loader.shown.showing import PICTURE_SIDE as PICTURE_SIDE
    from headrace.loader.shown.showing import PICTURE_SUFFIXES as PICTURE_SUFFIXES
    from headrace.loader.shown.showing import PartShown as PartShown
    from headrace.loader.shown.showing import about_picture as about_picture
    from headrace.loader.shown.showing import bytes_needed as bytes_needed
    from headrace.loader.shown.showing import picture_of as picture_of
    from headrace.loader.shown.showing import shown_part as shown_part
    from headrace.loader.shown.showing import small_picture as small_picture
    from headrace.loader.shown.sounds import SOUND_HEAD as SOUND_HEAD
    from headrace.loader.shown.sounds import SOUND_SUFFIXES as SOUND_SUFFIXES
    from headrace.loader.shown.sounds import media_type as media_type

__all__ = [
    "BLOCKS_AT_ONCE",
    "LARGEST_SHOWN",
    "MOST_JOINED",
    "PICTURE_SIDE",
    "PICTURE_SUFFIXES",
    "SOUND_HEAD",
    "SOUND_SUFFIXES",
    "Changed",
    "Dataset",
    "Epoch",
    "Ints",
    "IterableDataset",
    "Judge",
    "Loader",
    "PartShown",
    "Rate",
    "Skip",
    "Skipped",
    "Source",
    "Stats",
    "Stream",
    "Stretch",
    "Take",
    "Tensors",
    "about_picture",
    "bench",
    "bytes_needed",
    "class_columns",
    "convert",
    "dataset_of",
    "decide_block",
    "feed",
    "mean_size",
    "measure",
    "media_type",
    "open_column_classes",
    "picture_of",
    "places_of",
    "rate_of",
    "show",
    "shown_part",
    "sizes_at",
    "small_picture",
    "straight",
    "tensors",
]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "adapters.torch": ("Tensors", "tensors"),
            "adapters.torch_dataset": ("IterableDataset",),
            "adapters.torch_trainer": ("feed",),
            "adapters.torch_values": ("convert",),
            "benchmark": ("Epoch", "bench"),
            "column_classes": ("class_columns", "open_column_classes"),
            "dataset": ("Dataset",),
            "epoch_part": ("Source", "Stretch", "sizes_at"),
            "joining_limits": ("MOST_JOINED",),
            "loader": ("Loader",),
            "order.auto_block": ("decide_block",),
            "order.order": ("Ints", "Stream", "Take", "straight"),
            "order.store_rates": ("BLOCKS_AT_ONCE", "Rate", "measure", "rate_of"),
            "pipeline.bad_samples": ("Changed", "Judge", "Skip", "Skipped"),
            "pipeline.feeder": ("mean_size",),
            "pipeline.stats": ("Stats",),
            "recipe": ("dataset_of", "places_of"),
            "shown.batch_shown": ("show",),
            "shown.showing": (
                "LARGEST_SHOWN",
                "PICTURE_SIDE",
                "PICTURE_SUFFIXES",
                "PartShown",
                "about_picture",
                "bytes_needed",
                "picture_of",
                "shown_part",
                "small_picture",
            ),
            "shown.sounds": ("SOUND_HEAD", "SOUND_SUFFIXES", "media_type"),
        },
    )
