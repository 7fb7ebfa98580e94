"""Messages of pulls, and classification of their failures. Pure: lines of the engine in, messages and a verdict out.

Wordings of failures: Docker Engine 20.10 to 28 and the distribution registry's error codes (distribution spec,
"Error Codes"); each known wording is a row of the test's table.
"""

from typing import Any, Literal, NamedTuple

from fairlead_schemas.wire.events import StartFault

Kind = Literal[
    "reference", "not_allowed", "not_found", "denied", "rate_limit", "registry", "no_host", "network", "disk", "unknown"
]


#: A registry that is away is asked again after 10 s, 20 s, 40 s …, at most five times in all.
TRIES_MAX = 5
BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0

#: Checked in this order; the first kind whose words appear in the engine's message applies.
_WORDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("disk", ("no space left on device", "disk quota exceeded")),
    ("reference", ("invalid reference format", "repository name must be", "invalid checksum digest", "invalid tag format")),
    ("rate_limit", ("toomanyrequests", "too many requests", "rate limit")),
    # "pull access denied for x, repository does not exist or may require 'docker login'": the registry says no more.
    ("denied", ("unauthorized", "pull access denied", "denied:", "authentication required", "no basic auth credentials",
                "incorrect username or password", "forbidden")),
    ("not_found", ("manifest unknown", "not found: does not exist", "name unknown", "repository name not known",
                   "no matching manifest", "manifest for")),
    ("no_host", ("no such host",)),
    ("network", ("connection refused", "connection reset", "i/o timeout", "tls handshake", "x509:", "eof",
                 "network is unreachable", "no route to host", "context deadline exceeded", "timeout", "broke off",
                 "server gave http response to https client", "broken pipe", "proxyconnect", "without an answer")),
    ("registry", ("unexpected http status: 5", "received unexpected http status", "internal server error", "bad gateway",
                  "service unavailable", "unexpected status code", "filesystem layer verification failed",
                  "unexpected commit digest", "error parsing http")),
)  # fmt: skip
FAULTS: dict[Kind, StartFault] = {
    "reference": "job",
    "not_allowed": "job",
    "not_found": "job",
    "denied": "job",
    "no_host": "job",
    "disk": "node",
}
_AGAIN: tuple[Kind, ...] = ("rate_limit", "registry", "no_host", "network", "unknown")
MEANS: dict[Kind, str] = {
    "reference": "is not the name of an image; correct `image` in the job file",
    "not_allowed": "is not from a registry that this node may use",
    "not_found": "is not in its registry; check its name and tag",
    "denied": "was refused by its registry: it is not there, or the node's engine may not read it (docker login)",
    "rate_limit": "was refused: the registry limits the rate of requests of this node",
    "registry": "was not given: its registry fails",
    "no_host": "was not got: its registry does not exist",
    "network": "was not got: its registry cannot be reached from this node",
    "disk": "does not fit on this node's disk",
    "unknown": "could not be pulled",
}


class Failure(NamedTuple):
    """Failure of a pull, with its reason. `again`: the same node may try it again after a while."""

    kind: Kind
    fault: StartFault
    again: bool
    message: str


def classify(image: str, status: int, words: str) -> Failure:
    """Classify the failure of a pull.

    `status`: that of the engine's answer, 0 if the connection broke off or the progress reported the failure; `words`: the
    engine's error message.
    """
    kind = _kind(status, words.lower())
    message = f"image {image} {MEANS[kind]}: {' '.join(words.split())[:300]}"
    return Failure(kind, FAULTS.get(kind, ""), kind in _AGAIN, message)


def refused(image: str, words: str) -> Failure:
    """Return the failure for an image that is refused without a request to the engine."""
    return Failure("not_allowed", FAULTS["not_allowed"], False, f"image {image} {MEANS['not_allowed']}: {words}")


def _kind(status: int, words: str) -> Kind:
    if status == 400:
        return "reference"
    for kind, each in _WORDS:
        if any(word in words for word in each):
            return kind
    if status == 404:
        return "not_found"
    return "unknown"


def backoff_s(failed: int) -> float | None:
    """Seconds until the next try after so many have failed; None when that was the last."""
    return None if failed >= TRIES_MAX else min(BACKOFF_MAX_S, BACKOFF_S * 2 ** (failed - 1))


class Progress:
    """Progress of one pull. Layers of unknown size are not counted, so the percentage is kept from falling when another size
    becomes known.
    """

    def __init__(self, image: str) -> None:
        self.image = image
        self.percent = 0
        #: {layer: (bytes here, bytes in all)}.
        self._layers: dict[str, tuple[int, int]] = {}

    def take(self, line: dict[str, Any]) -> str:
        """Apply one line of the engine's progress. Return the error, "" if there is none."""
        if "error" in line:
            return str((line.get("errorDetail") or {}).get("message") or line["error"])
        layer, detail = str(line.get("id", "")), line.get("progressDetail") or {}
        status = str(line.get("status", ""))
        if status == "Downloading" and detail.get("total"):
            self._layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif status in ("Download complete", "Pull complete") and layer in self._layers:
            _, total = self._layers[layer]
            self._layers[layer] = (total, total)
        here, total = self.bytes
        if total:
            self.percent = max(self.percent, min(99, here * 100 // total))
        return ""

    @property
    def bytes(self) -> tuple[int, int]:
        """(here, in all), of layers whose size is known."""
        return sum(here for here, _ in self._layers.values()), sum(total for _, total in self._layers.values())

    def words(self) -> str:
        """ "pulling image x: 40 %, 12 of 30 MiB"."""
        here, total = self.bytes
        if not total:
            return f"pulling image {self.image}"
        amounts = f", {here >> 20} of {total >> 20} MiB" if total >> 20 else ""
        return f"pulling image {self.image}: {self.percent} %{amounts}"
