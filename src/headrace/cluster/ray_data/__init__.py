"""Ray Data and Ray Train, as `hr.ray`: a dataset's samples as a `ray.data.Dataset`, and the loader of a worker.

Ray is imported when something here is used, not before.
"""

from headrace.cluster.ray_data.reading import dataset
from headrace.cluster.ray_data.train import shard

__all__ = ["dataset", "shard"]
