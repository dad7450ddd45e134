"""The beginning of a file as one looks at it: pictures, text, tables, archives, arrays. A module a kind of file.

`headrace.web.previews.kinds` is the seam: a new kind is a module with a `KIND`, and its name in the list there.
"""

from headrace.web.previews.making import Previews
from headrace.web.previews.preview import Fact, Heading, Preview

__all__ = ["Fact", "Heading", "Preview", "Previews"]
