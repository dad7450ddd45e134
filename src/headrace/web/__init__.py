"""The page over the bucket: runs, data and files as one looks at them in a browser."""

from headrace.web.options import ALLOWED, Options

__all__ = ["ALLOWED", "Options"]
