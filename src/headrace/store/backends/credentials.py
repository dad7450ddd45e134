"""Where AWS credentials come from: given, environment, then botocore's chain (profile, role, web identity, SSO,
metadata).

botocore is imported only when needed, and asks the instance's metadata service only when nothing else answers.
Renewal never blocks the reader's thread: credentials older than a minute are renewed in the background, while
botocore itself renews 15 minutes before they end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.base.errors import CredentialsError, HeadraceError
from headrace.base.settings import environment
from headrace.store.backends.errors import from_botocore
from headrace.store.backends.sigv4 import Keys
from headrace.store.protocol import StoreOptions

DEFAULT_REGION = "us-east-1"
_FRESH_S = 60.0
"""Seconds for which keys are used without a question to the chain."""
_USABLE_S = 300.0  # seconds for which they are used while the chain is asked behind
_BETWEEN_RENEWALS_S = 10.0
"""Seconds between looks from the start of the chain, however many requests were refused meanwhile."""
_BETWEEN_CHANGES_S = 1.0  # seconds, where the last look found other keys a moment ago
_LATELY_S = 30.0  # seconds since then: requests signed with the old keys may still be refused
_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or say anonymous = true"


class Credentials:
    """The present keys of one store. Any thread.

    Args:
        options: what was given.
        path: the store's URL, for errors.
        clock: monotonic seconds.
    """

    def __init__(self, options: StoreOptions, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._path = path
        self._clock = clock
        self._static = _static(options, path)
        self._lock = threading.Lock()
        self._chain: Any = None
        self._keys: Keys | None = None
        self._since = float("-inf")
        self._tried = float("-inf")
        self._changed = float("-inf")
        self._renewing = False

    def keys(self) -> Keys | None:
        """The present keys; None for anonymous.

        Raises:
            CredentialsError: there are none, or their source failed.
        """
        if self._options.anonymous:
            return None
        if self._static is not None:
            return self._static
        age = self._clock() - self._since
        if age < _FRESH_S:
            return self._keys
        if age < _USABLE_S and self._keys is not None:
            self._renew_behind()
            return self._keys
        with self._lock:
            return self._ask()

    def renew(self) -> bool:
        """Throw the credentials away after the store refused them, and look again from the start of the chain.

        Returns:
            True when different keys were found, now or within the last 30 s: a retry may succeed. The source is asked
            each time, but no more than once in 10 s, or in 1 s where keys are just being replaced.
        """
        if self._options.anonymous or self._static is not None:
            return False
        with self._lock:
            now = self._clock()
            lately = now - self._changed < _LATELY_S
            if now - self._tried < (_BETWEEN_CHANGES_S if lately else _BETWEEN_RENEWALS_S):
                return lately
            self._tried, before, self._chain = now, self._keys, None
            try:
                changed = self._ask() != before
            except HeadraceError:
                return lately
            self._changed = now if changed else self._changed
            return changed or lately

    def _renew_behind(self) -> None:
        if self._renewing:
            return
        self._renewing = True

        def work() -> None:
            try:
                with self._lock:
                    self._ask()
            except HeadraceError:
                pass  # the keys at hand still hold; when they no longer do, the next caller gets the error
            finally:
                self._renewing = False

        threading.Thread(target=work, name="headrace-credentials", daemon=True).start()

    def _ask(self) -> Keys:
        """Under the lock: the chain's present keys."""
        try:
            if self._chain is None:
                self._chain = _chain(self._options)
            frozen = self._chain.get_frozen_credentials() if self._chain is not None else None
        except Exception as error:
            raise from_botocore(self._path, error) from error
        if frozen is None or not frozen.access_key:
            raise CredentialsError("no credentials", path=self._path, hint=_HINT)
        self._keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        self._since = self._clock()
        return self._keys


def _static(options: StoreOptions, path: str) -> Keys | None:
    if options.role_arn:
        return None
    if options.access_key_id or options.secret_access_key:
        if not (options.access_key_id and options.secret_access_key):
            raise CredentialsError(
                "half of a key pair", path=path, hint="give both access_key_id and secret_access_key, or neither"
            )
        return Keys(options.access_key_id, options.secret_access_key, options.session_token)
    key, secret = environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY")
    if options.profile or not (key and secret):
        return None
    return Keys(key, secret, environment("AWS_SESSION_TOKEN"))


def region_of(options: StoreOptions) -> str | None:
    """The region that the options or the environment name; the profile may name another."""
    return options.region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")


def _chain(options: StoreOptions) -> Any:
    """Botocore's credentials object (it renews itself), or None."""
    session = aws_session(options)
    if options.role_arn:
        return _assumed(session, options)
    return session.get_credentials()


def aws_session(options: StoreOptions) -> Any:
    """A botocore session for the options' profile, or the environment's.

    The session is told the region and the CA file that we know: botocore itself does not read ``AWS_REGION``.
    """
    import botocore.session

    session = botocore.session.Session(profile=options.profile)
    for name, known in (("region", region_of(options)), ("ca_bundle", options.ca_file)):
        if known is not None:
            session.set_config_variable(name, known)
    return session


def _assumed(session: Any, options: StoreOptions) -> Any:
    from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials

    if options.access_key_id and options.secret_access_key:
        source: Any = Credentials(options.access_key_id, options.secret_access_key, options.session_token)
    else:
        source = session.get_credentials()
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(
            session.create_client, region_name=session.get_config_variable("region") or DEFAULT_REGION
        ),
        source_credentials=source,
        role_arn=options.role_arn,
        extra_args={"RoleSessionName": "headrace"},
    )
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
