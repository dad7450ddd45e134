"""One HTTP/1.1 server loop, for the S3 door and for models. Needs httptools (the extras `gateway` and `serving`)."""

from headrace.http_server.address import Address
from headrace.http_server.application import Application, Streamed
from headrace.http_server.exchange import Exchange
from headrace.http_server.incoming import BodyReader
from headrace.http_server.limits import Limits
from headrace.http_server.messages import FileSlice, Headers, Response, Stream, Whole
from headrace.http_server.processes import Processes
from headrace.http_server.server import Server

__all__ = [
    "Address", "Application", "BodyReader", "Exchange", "FileSlice", "Headers", "Limits", "Processes", "Response",
    "Server", "Stream", "Streamed", "Whole",
]  # fmt: skip
