"""Answers of the proxy itself at the host of an app: errors in words, and the entry. Pure. Start at `error_page`."""

from html import escape

from fairlead_appproxy.browser_rules import AppHost

#: Names of the proxy's cookie: with the prefix no other host can set it; a browser takes that over https alone.
SECURE_COOKIE, PLAIN_COOKIE = b"__Host-fairlead-app", b"fairlead-app"
#: Seconds after which a page that waits asks again.
AGAIN_S = 2

#: Words of the statuses that the proxy answers with.
REASONS = {
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    410: "Gone",
    421: "Misdirected Request",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
_TITLES = {403: "Not entered", 404: "Not there", 410: "Ended", 502: "No answer", 503: "Not ready", 504: "No answer"}
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>{again}
<meta name="viewport" content="width=device-width"><style>body{{font:1rem/1.5 sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}}
</style></head><body><h1>{title}</h1><p>{words}</p></body></html>
"""
#: Of every answer of the proxy's own: nothing of it is kept, framed, or runs.
_HEADERS = (
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
)
#: What pages have left at the host of an app that has ended. Not its cookies: that would end the entries of all apps below the domain.
_GONE = 'Clear-Site-Data: "cache", "storage"\r\n'


def cookie_name(host: AppHost) -> bytes:
    """Return the name of the proxy's cookie at a host."""
    return SECURE_COOKIE if host.is_secure else PLAIN_COOKIE


def error_page(status: int, words: str, *, as_page: bool, closes: bool = True) -> bytes:
    """Return an answer with a status and the reason in words. `as_page`: for a person who opens it; a page that waits asks again by
    itself. An app that has ended takes with it what its pages have left in the browser.
    """
    again = f'<meta http-equiv="refresh" content="{AGAIN_S}">' if status == 503 else ""
    title = _TITLES.get(status, "Refused")
    body = (_PAGE.format(title=title, again=again, words=escape(words)) if as_page else f"{words}\n").encode()
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'Refused')}\r\n{_HEADERS}"
    head += f"Content-Type: text/{'html' if as_page else 'plain'}; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    head += _GONE if status == 410 else ""
    head += f"Retry-After: {AGAIN_S}\r\n" if status == 503 else ""
    head += "Connection: close\r\n" if closes else ""
    return f"{head}\r\n".encode() + body


def entered_answer(host: AppHost, secret: str) -> bytes:
    """Return the answer to a good code: a cookie of this very host, and the way to the app's first page."""
    secure = "; Secure" if host.is_secure else ""
    cookie = f"{cookie_name(host).decode()}={secret}; Path=/; HttpOnly; SameSite=Lax{secure}"
    head = f"HTTP/1.1 303 See Other\r\n{_HEADERS}Location: /\r\nSet-Cookie: {cookie}\r\nContent-Length: 0\r\n"
    return f"{head}Connection: close\r\n\r\n".encode()
