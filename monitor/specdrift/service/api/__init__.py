"""The HTTP API of the service, and the thread it is served from."""

from specdrift.service.api.app import LOOPBACK_HOSTS, create_app, openapi_document
from specdrift.service.api.server import ApiServer

__all__ = ["LOOPBACK_HOSTS", "ApiServer", "create_app", "openapi_document"]
