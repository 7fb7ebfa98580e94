"""Identifiers: their alphabet, and how an array's elements are named.

A job id is a decimal number ("812"); the elements of an array append their index ("812_3").
Node ids, queue path parts and user names are tokens, because they become parts of subjects,
container names and file names; a hostname may hold dots, so a node id is not a hostname.
"""

import re

JobId = str

TOKEN_CHARS_MAX = 63
QUEUE_DEPTH_MAX = 8
PROJECT_CHARS_MAX = 128
#: The highest priority of a job; the lowest is 0.
PRIORITY_MAX = 1000

_TOKEN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_JOB_ID = re.compile(r"[1-9][0-9]{0,17}(_[0-9]{1,7})?\Z")


def is_token(text: str) -> bool:
    """True for 1 to 63 of `a-z 0-9 _ -`, the first being a letter or a digit."""
    return _TOKEN.match(text) is not None


def is_job_id(text: str) -> bool:
    """True for a job id ("812") or an array element's id ("812_3")."""
    return _JOB_ID.match(text) is not None


def is_queue_path(text: str) -> bool:
    """True for tokens joined by "/", at most eight deep ("research/vision")."""
    parts = text.split("/")
    return len(parts) <= QUEUE_DEPTH_MAX and all(is_token(part) for part in parts)


def element_id(array: JobId, index: int) -> JobId:
    """The id of one element of an array: `element_id("812", 3) == "812_3"`."""
    return f"{array}_{index}"


def array_of(job: JobId) -> JobId | None:
    """The array that an element belongs to, or None for a job that is no element."""
    return job.partition("_")[0] if "_" in job else None
