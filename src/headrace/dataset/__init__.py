"""Datasets: snapshots, samples, order, the loading pipeline, and adapters to frameworks."""

from headrace.dataset.dataset import Dataset
from headrace.dataset.ledger import Changed, Skip, Skipped
from headrace.dataset.loader import Loader
from headrace.dataset.stats import Stats

__all__ = ["Changed", "Dataset", "Loader", "Skip", "Skipped", "Stats"]
