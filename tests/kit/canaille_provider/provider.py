# Run by another interpreter, which has canaille.
# pyright: basic
# pyright: reportMissingImports=false
"""A second OpenID provider for the tests, in Python: accounts with passwords, signing keys of two kinds, groups only by a scope of their own.

Arguments: port, redirect URI, address to return to after a logout, the client's secret, and the password of every account.
"""

import os
import sys

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "true"  # it is on loopback

from canaille import create_app
from canaille.app import models
from werkzeug.serving import make_server

GROUPS = {"ann": ("staff", "vision"), "eve": ()}

port, redirect, back, secret, password = sys.argv[1:]
app = create_app(
    {
        "SECRET_KEY": "of the tests",
        "SERVER_NAME": f"localhost:{port}",
        "PREFERRED_URL_SCHEME": "http",
        "CANAILLE": {"DATABASE": "memory", "TIMEZONE": "UTC", "FORCE_HTTPS": False, "JAVASCRIPT": False},
        # After a logout it returns to these only. The client has no address of its own, so consent is asked all the same.
        "CANAILLE_OIDC": {"TRUSTED_DOMAINS": ["127.0.0.1"]},
    }
)
with app.app_context():
    accounts = {}
    for name in GROUPS:
        accounts[name] = models.User(
            formatted_name=f"{name} of the tests",
            family_name="of the tests",
            user_name=name,
            display_name=name,
            emails=[f"{name}@example.org"],
            password=password,
        )
        app.backend.save(accounts[name])
    for group in sorted({group for groups in GROUPS.values() for group in groups}):
        members = [accounts[name] for name, groups in GROUPS.items() if group in groups]
        app.backend.save(models.Group(display_name=group, members=members))
    client = models.Client(
        client_id="fairlead",
        client_name="Fairlead",
        client_secret=secret,
        redirect_uris=[redirect],
        post_logout_redirect_uris=[back],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_basic",
        # Without it canaille takes the longest, RS512, which the gateway refuses; RS256 is the other provider's.
        id_token_signed_response_alg="EdDSA",
    )
    app.backend.save(client)
    client.audience = [client]
    app.backend.save(client)

make_server("127.0.0.1", int(port), app, threaded=True).serve_forever()
