"""POST /v1/pieces:missing and PUT /v1/pieces/{digest}: directories that go with jobs, piece by piece.

A client divides a directory into pieces, asks which of them have to be sent, sends those, and submits a job whose `sync` names
the root piece. Whoever may submit jobs somewhere may send pieces. A piece says nothing of who has sent it: equal pieces are one.
"""

from fastapi import Request, Response

from fairlead_bus.pieces import PieceStore
from fairlead_bus.port import StreamFull
from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import HEAD, JsonResponse, read_body, read_request
from fairlead_gateway.routes.request_bodies import PiecesRequest
from fairlead_gateway.routes.router import Router, extra_of, json_content, listed
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import MissingPieces, PieceStored
from fairlead_schemas.wire import trees

OCTETS = b"application/octet-stream"
#: Digests of one question.
DIGESTS_MAX = 500


def store_full() -> HttpError:
    """Return the 503 for a bus that keeps no more pieces."""
    detail = "the cluster keeps no more pieces of directories now"
    hint = "send less: a .gitignore leaves files out; an admin raises FAIRLEAD_PIECE_MAX_BYTES"
    return HttpError(503, "pieces_full", detail, hint=hint)


def routes(views: Views, store: PieceStore) -> Router:
    """Return both routes."""
    router = Router()
    right = listed("job:submit")

    @router.guarded(
        right,
        router.post(
            "/v1/pieces:missing",
            summary="Pieces of a directory that the cluster does not have",
            responses=router.answers(MissingPieces),
            openapi_extra=extra_of(right, router.body(PiecesRequest)),
        ),
    )
    async def find_missing_pieces(request: Request) -> Response:
        asked = await read_request(request, PiecesRequest)
        if len(asked.digests) > DIGESTS_MAX:
            raise bad_field("digests", f"expected at most {DIGESTS_MAX}, found {len(asked.digests)}")
        missing = await store.missing(
            _digest(f"digests[{index}]", digest) for index, digest in enumerate(asked.digests)
        )
        return JsonResponse(MissingPieces(missing=[each.hex() for each in missing], sequence=views.sequence))

    @router.guarded(
        right,
        router.put(
            "/v1/pieces/{digest}",
            summary="Send one piece of a directory, under its SHA-256",
            responses=router.answers(PieceStored),
            openapi_extra=extra_of(
                right,
                {
                    "requestBody": {
                        "required": True,
                        "content": json_content({"type": "string", "format": "binary"}, OCTETS.decode()),
                    }
                },
            ),
        ),
    )
    async def put_piece(digest: str, request: Request) -> Response:
        wanted = _digest("digest", digest)
        data = await read_body(request.scope[HEAD], request.receive, trees.PIECE_BYTES_MAX, (OCTETS,))
        if (found := trees.digest_of(data)) != wanted:
            raise bad_field("digest", f"expected {found.hex()}, the SHA-256 of the body, found {digest}")
        try:
            await store.put(data)
        except StreamFull as error:
            raise store_full() from error
        return JsonResponse(PieceStored(digest=digest, bytes=len(data), sequence=views.sequence))

    return router


def _digest(field: str, text: str) -> bytes:
    digest = trees.parse_digest(text)
    if digest is None:
        raise bad_field(field, f"expected a SHA-256 in 64 lower-case hex digits, found {text[:80]!r}")
    return digest


def tree_fault(name: str) -> str:
    """Return the reason why a job file's `sync` names no directory that the cluster has."""
    return (
        f"expected a directory that the cluster has, found {name[:80]}; send it again with fairlead submit --sync DIR"
    )
