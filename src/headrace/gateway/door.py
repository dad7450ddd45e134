"""The application: each request to what answers it. What is warm is answered on the loop, all else on threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.base.threads import Crew
from headrace.gateway.buckets import Bucket, Buckets
from headrace.gateway.changes import Changes
from headrace.gateway.failures import S3Failure, answer, denied, translated
from headrace.gateway.keys import Keyring
from headrace.gateway.listing import Listings, iso_time
from headrace.gateway.options import GatewayOptions
from headrace.gateway.parts import Uploads
from headrace.gateway.reading import Reading
from headrace.gateway.requests import S3Request, parsed, verified, xml_headers
from headrace.gateway.signing import Verifier
from headrace.gateway.writing import Writing
from headrace.gateway.xml import document, element
from headrace.http_server import Exchange, Response, Streamed, Whole
from headrace.namespace import Namespace

_NOTHING = Whole(0)
Act = Callable[[S3Request, Bucket], Response]
_OTHERS = frozenset((
    "accelerate", "acl", "analytics", "attributes", "cors", "encryption", "intelligent-tiering", "inventory",
    "legal-hold", "lifecycle",
    "logging", "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
    "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "session", "tagging",
    "torrent", "versionId", "versions", "website",
))  # fmt: skip
"""Parts of S3 that are not here: a client is told, rather than answered as if it had not asked."""
_OBJECT = frozenset(("x-id", *(f"X-Amz-{name}" for name in (
    "Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature", "Security-Token",
))))  # fmt: skip
"""Parameters of a GET that asks for the object, and for nothing else."""


class Door:
    """Answers S3's requests; an `Application` of the HTTP server.

    Args:
        namespace: what is behind it.
        options: as given.
        folder: for bodies and parts; every gateway of a user on this node has the same.
    """

    def __init__(self, namespace: Namespace, options: GatewayOptions, folder: str) -> None:
        self._namespace = namespace
        self._buckets = Buckets(namespace, options.tree, options.buckets)
        self._domain = options.domain
        self._verifier = Verifier(Keyring(options.keys))
        self._changes = Changes(f"{folder}/changes")
        self._reading = Reading(namespace, self._buckets, self._changes, metadata=options.metadata)
        self._crew = Crew("gateway", namespace.fetcher.settings.fetch.connections)  # they wait for answers of stores
        self._listings = Listings(namespace, self._changes, namespace.fetcher.settings.cache.ttl, self._crew.add)
        self._writing = Writing(namespace, self._buckets, self._changes, folder, self._listings.forget)
        self._uploads = Uploads(self._writing, f"{folder}/uploads")

    def head(self, exchange: Exchange) -> Whole | Streamed | Response:
        """Whose request it is, where it has a body: before any of that is taken."""
        if exchange.method in ("GET", "HEAD", "DELETE", "OPTIONS"):
            return _NOTHING
        request: S3Request | None = None
        try:
            request = parsed(exchange, self._domain)
            verified(request, self._verifier)
        except Exception as error:
            return _failed(request, error)
        return Streamed(lambda _: self._answer(request))

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        """Answer what is warm; hand the rest to threads."""
        for exchange in exchanges:
            request: S3Request | None = None
            try:
                request = parsed(exchange, self._domain)
                verified(request, self._verifier)
                if not (request.method == "GET" and request.key and self._read(request)):
                    self._crew.add(lambda mine=request: self._answer(mine))
            except Exception as error:
                exchange.answer(_failed(request, error))

    def _read(self, request: S3Request) -> bool:
        """Answer a GET of an object here, or begin to; False: that is for a thread. Raises S3Failure."""
        if not request.client.sees(request.bucket, request.key):
            return False
        others = request.query.keys() - _OBJECT
        if others and not all(name.startswith("response-") for name in others):
            return False  # something else of the object is asked for
        warm = self._reading.at_once(request)
        if warm is not None:
            request.answer(warm)
            return True
        bucket = self._buckets.get(request.bucket)
        return self._reading.begin(request, bucket, lambda result: self._tell(request, result), self._crew.add)

    def _tell(self, request: S3Request, result: Response | Exception) -> None:
        if isinstance(result, Response):
            request.answer(result)
        elif not request.exchange.gone:
            request.answer(_failed(request, result))

    def close(self) -> None:
        """Let go of all. What is under way ends by itself."""
        self._crew.close()
        self._reading.close()
        self._writing.close()
        fetcher = self._namespace.fetcher
        fetcher.drain()
        fetcher.close()
        self._namespace.close()

    def _answer(self, request: S3Request) -> None:
        if request.exchange.gone:
            return
        try:
            response = self._act(request)
        except Exception as error:
            if request.exchange.gone:
                return
            response = _failed(request, error)
        request.answer(response)

    def _act(self, request: S3Request) -> Response:
        if not request.bucket:
            return self._list_buckets(request)
        bucket = self._buckets.get(request.bucket)
        if not request.client.sees(bucket.name, request.key):
            raise denied()
        others = _OTHERS.intersection(request.query)
        if others:
            raise S3Failure("NotImplemented", f"{min(others)} is not implemented here.")
        acts = self._of_object(request) if request.key else self._of_bucket(request)
        act = acts.get(request.method)
        if act is None:
            raise S3Failure("MethodNotAllowed", "The specified method is not allowed against this resource.")
        return act(request, bucket)

    def _of_object(self, request: S3Request) -> dict[str, Act]:
        copies = "x-amz-copy-source" in request.headers
        if "uploadId" in request.query or (request.method == "PUT" and "partNumber" in request.query):
            uploads = self._uploads
            return {"PUT": uploads.copy_part if copies else uploads.part, "POST": uploads.complete,
                    "DELETE": uploads.abort, "GET": uploads.list_parts}  # fmt: skip
        acts: dict[str, Act] = {"GET": self._reading.get, "HEAD": self._reading.head, "DELETE": self._writing.delete,
                                "PUT": self._writing.copy if copies else self._writing.put}  # fmt: skip
        if "uploads" in request.query:
            acts["POST"] = self._uploads.begin
        return acts

    def _of_bucket(self, request: S3Request) -> dict[str, Act]:
        query = request.query
        get = self._listings.page
        if "location" in query:
            get = _location
        elif "uploads" in query:
            get = self._uploads.list_uploads
        elif "versioning" in query:
            get = _versioning
        acts: dict[str, Act] = {"GET": get, "HEAD": _head_bucket, "PUT": _make_bucket}
        if "delete" in query:
            acts["POST"] = self._writing.delete_many
        return acts

    def _list_buckets(self, request: S3Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise S3Failure("MethodNotAllowed", "The specified method is not allowed against this resource.")
        names = [name for name in self._buckets.names if request.client.sees(name)]
        who = request.client.access_key
        said = [element("Owner", element("ID", who), element("DisplayName", who))]
        made = element("CreationDate", iso_time(0))
        said += [element("Buckets", *[element("Bucket", element("Name", name), made) for name in names])]
        return Response(200, xml_headers(request), document("ListAllMyBucketsResult", said))


def _failed(request: S3Request | None, error: Exception) -> Response:
    failure = translated(error)
    if request is None:
        return answer(failure, "/", "0" * 16)
    response = answer(failure, request.resource, request.id)
    if request.method == "HEAD":
        response.body = b""
    return response


def _head_bucket(request: S3Request, bucket: Bucket) -> Response:  # noqa: ARG001
    return Response(200, [("x-amz-bucket-region", "us-east-1"), ("x-amz-request-id", request.id)])


def _make_bucket(request: S3Request, bucket: Bucket) -> Response:  # noqa: ARG001
    raise S3Failure("BucketAlreadyExists", "The requested bucket name is not available: what is attached is a bucket.")


def _location(request: S3Request, bucket: Bucket) -> Response:  # noqa: ARG001
    return Response(200, xml_headers(request), document("LocationConstraint", []))


def _versioning(request: S3Request, bucket: Bucket) -> Response:  # noqa: ARG001
    return Response(200, xml_headers(request), document("VersioningConfiguration", []))
