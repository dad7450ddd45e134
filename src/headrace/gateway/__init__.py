"""S3 over the namespace and the node's cache. Needs the extra `gateway`."""

from headrace.gateway.keys import Key, Keyring, load, made
from headrace.gateway.options import GatewayOptions
from headrace.gateway.server import Gateway

__all__ = ["Gateway", "GatewayOptions", "Key", "Keyring", "load", "made"]
