"""The page over the bucket: runs, data and files as one looks at them in a browser."""

from headrace.web.options import Options

__all__ = ["Options"]
