"""ApiVersions: list the supported API versions and features. The connection caches the encoded response."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.supported_apis import SupportedApis
    from konvene.runtime.coordinator import RequestContext

_SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_SOFTWARE = 3


def handle(
    catalogue: ClusterCatalogue,
    supported_apis: SupportedApis,
    request: ApiVersionsRequest,
    context: RequestContext,
) -> ApiVersionsResponse:
    if context.api_version >= FIRST_VERSION_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE_PATTERN.fullmatch(name) or not _SOFTWARE_PATTERN.fullmatch(version):
            return ApiVersionsResponse(error_code=Errors.INVALID_REQUEST)
    if request.cluster_id is not None and request.cluster_id != catalogue.cluster_id:
        return ApiVersionsResponse(error_code=Errors.REBOOTSTRAP_REQUIRED)
    if request.node_id != -1 and request.node_id != catalogue.node_id:
        return ApiVersionsResponse(error_code=Errors.REBOOTSTRAP_REQUIRED)
    return supported_apis.response(context.api_version)
