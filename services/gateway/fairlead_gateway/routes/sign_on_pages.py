"""Pages of sign-on: plain HTML without scripts or styles. Everything that people, commands or providers wrote is escaped."""

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from fastapi import Response

from fairlead_gateway.errors import HttpError
from fairlead_gateway.routes.tokens import NO_STORE


def _page(title: str, body: str, status: int = 200, forms_to: Iterable[str] = ()) -> Response:
    """Return a page. `forms_to`: origins to which the answer to a form may lead, next to our own."""
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} – Fairlead</title><h1>{escape(title)}</h1>{body}</html>"
    )
    sources = " ".join(("'self'", *sorted(set(forms_to))))
    headers = {
        **NO_STORE,
        "content-security-policy": f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        f"img-src 'self' data:; form-action {sources}; frame-ancestors 'none'; base-uri 'none'",
        # Not no-referrer, with which browsers send "Origin: null" along with our own forms.
        "referrer-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "cross-origin-opener-policy": "same-origin",
    }
    return Response(html, status, headers, "text/html; charset=utf-8")


def _hidden(**fields: str) -> str:
    return "".join(
        f'<input type="hidden" name="{name}" value="{escape(value, quote=True)}">' for name, value in fields.items()
    )


def ways(providers: Iterable[str], target: str) -> Response:
    """Return the list of providers, and the form of local users."""
    links = "".join(
        f'<li><a href="/sign-in/{quote(name)}?to={quote(target, safe="")}">Sign in with {escape(name)}</a></li>'
        for name in providers
    )
    form = (
        '<h2>Local user</h2><form method="post" action="/v1/sign-in/local">'
        '<p><label>Name <input name="login" autocomplete="username"></label></p>'
        '<p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>'
        f"{_hidden(to=target)}<button>Sign in</button></form>"
    )
    return _page("Sign in", (f"<ul>{links}</ul>" if links else "") + form)


def sign_in_first(target: str) -> Response:
    """Return the answer to a browser that asks for a page without a credential: it leads to the sign-in, and from there back."""
    address = f"/sign-in?to={quote(target, safe='')}"
    moves = f'<meta http-equiv="refresh" content="0; url={address}">'
    return _page("Sign in", f'{moves}<p><a href="{address}">Sign in</a> to see this page.</p>', 401)


def failed(hint: str = "", status: int = 403, target: str = "/") -> Response:
    """Return the page of a sign-in that failed. Without a hint all failures look the same. `target`: path that it was to lead to."""
    reason = f"<p>{escape(hint[:1].upper() + hint[1:])}.</p>" if hint else "<p>The sign-in was not accepted.</p>"
    again = "/sign-in" if target == "/" else f"/sign-in?to={quote(target, safe='')}"
    return _page("Not signed in", f'{reason}<p><a href="{again}">Sign in again</a></p>', status)


def refused(error: HttpError, target: str) -> Response:
    """Return the page of a sign-in that was refused, with the reason, which programs get as a document."""
    response = failed(error.detail, error.status, target)
    if error.retry_after_s:
        response.headers["retry-after"] = str(error.retry_after_s)
    return response


def sign_out(providers: Iterable[str]) -> Response:
    """Return the page that asks before a sign-out, which continues at the provider."""
    form = '<form method="post" action="/sign-out"><button>Sign out</button></form>'
    return _page("Sign out", form, forms_to=providers)


def type_code(problem: str = "", status: int = 200) -> Response:
    """Return the page to type a code."""
    said = f"<p><strong>{escape(problem)}</strong></p>" if problem else ""
    form = (
        '<form method="post" action="/device"><p><label>Code '
        '<input name="user_code" autocomplete="off" autocapitalize="characters" autofocus></label></p>'
        "<button>Continue</button></form>"
    )
    return _page("Sign in a command", f"{said}<p>Type the code that the command shows.</p>{form}", status)


_GIVEN = (
    "<p>It gets everything that you may do here, for 30 days or until you sign out. "
    "Allow it only if you started it yourself, just now.</p>"
)


def confirm_device(code: str, machine: str, address: str, who: str) -> Response:
    """Return the page that shows what a typed code would allow."""
    shown = (
        f"<p>A command on <strong>{escape(machine or 'a machine without a name')}</strong>, at the address "
        f"<strong>{escape(address)}</strong>, wants to act as <strong>{escape(who)}</strong>.</p>{_GIVEN}"
    )
    form = (
        f'<form method="post" action="/device/answer">{_hidden(user_code=code)}'
        '<button name="answer" value="allow">Allow</button> <button name="answer" value="deny">Refuse</button></form>'
    )
    return _page("Sign in a command", shown + form)


def confirm_command(redirect_uri: str, challenge: str, state: str, who: str, origin: str) -> Response:
    """Return the page that asks before a command on this machine signs in."""
    shown = f"<p>A command on this machine wants to act as <strong>{escape(who)}</strong>.</p>{_GIVEN}"
    hidden = _hidden(redirect_uri=redirect_uri, code_challenge=challenge, state=state)
    form = f'<form method="post" action="/sign-in-command">{hidden}<button>Allow</button></form>'
    return _page("Sign in a command", shown + form, forms_to=[origin])


def done(sentence: str) -> Response:
    """Return the last page of a sign-in of a command."""
    return _page("Sign in a command", f"<p>{escape(sentence)} You can close this page.</p>")
