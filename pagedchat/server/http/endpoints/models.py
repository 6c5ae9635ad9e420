"""`/v1/models`: the one model that is served."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.server.http.endpoints.common import check_model, ready
from pagedchat.server.http.schemas.common import ModelCard, ModelList
from pagedchat.server.served import Served

_encode = msgspec.json.Encoder().encode


async def models(request: Request) -> Response:
    """All of them, under each of its names."""
    served = ready(request)
    cards = [_card(served, name) for name in served.names]
    return Response(_encode(ModelList(data=cards)), media_type="application/json")


async def model(request: Request) -> Response:
    """One, by its name."""
    served = ready(request)
    name = request.path_params["model"]
    check_model(served, name)
    return Response(_encode(_card(served, name)), media_type="application/json")


def _card(served: Served, name: str) -> ModelCard:
    info = served.info
    return ModelCard(id=name, created=served.created, root=info.model, max_model_len=info.max_model_len)
