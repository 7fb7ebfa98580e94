"""Table of attacks on the front door: for each the test that it fails against, and the guard without which it succeeds.

`test_attack_table.py` runs each test with its guard taken out, and expects it to fail. Numbers are those by which tests name attacks.
"""

from typing import Any, NamedTuple

import msgspec

from fairlead_gateway.access.accounts import CliSignIn
from fairlead_gateway.errors import HttpError
from fairlead_rights.access_list import Reach, Target

_CONVERT = msgspec.convert
ACCESS, SIGN_ON, ROUTES = "tests/gateway/access", "tests/gateway/signon", "tests/gateway/routes"
GATEWAY = "fairlead_gateway"


class Row(NamedTuple):
    """One attack in one form."""

    #: Its number, and what is tried.
    attack: str
    says: str
    #: Test, as pytest names it.
    test: str
    #: {dotted name of a guard: what takes its place}
    guards: dict[str, Any]
    #: Exception of the product in which the harm shows, where that is no assertion of the test.
    harm: str = ""


def _nothing(*_: object, **__: object) -> None:
    return None


async def _later(*_: object, **__: object) -> None:
    return None


def _true(*_: object, **__: object) -> bool:
    return True


async def _zero(*_: object, **__: object) -> int:
    return 0


def _by_prefix(reach: Reach, target: Target) -> bool:
    """Compare queues as text."""
    return reach.cluster or any(target.queue.startswith(name) for name in reach.queues)


def _first_cookie(cookie: bytes, **_: object) -> bytes:
    return cookie.split(b";")[0].partition(b"=")[2]


def _given(number: int) -> Any:
    """Return a function that returns one of its arguments."""
    return lambda *arguments: arguments[number]


async def _admits(people: Any, head: Any, principal: str, *, active: bool) -> None:
    """Suspend or admit, whatever was done by hand."""
    from fairlead_schemas.wire.commands import AdmitPrincipal, SuspendPrincipal

    kind = AdmitPrincipal if active else SuspendPrincipal
    await people.accounts.send(kind(id=people.accounts.new_command_id(None), principal=principal))


async def _kept_link(credentials: Any, digest: str) -> Any:
    """Return a sign-in link and leave it."""
    from fairlead_gateway.access.credentials import SignInCode

    return await credentials._get(f"link.{digest}", SignInCode)


def _lenient(document: Any, kind: Any, **_: object) -> Any:
    """Read a file without what is not known in it."""
    known = {name: value for name, value in document.items() if name in kind.__struct_fields__}
    return _CONVERT(known, kind)


def _denied(caller: Any, verb: Any, target: Any, **_: object) -> None:
    """Deny also what the caller may not know of."""
    if not caller.may(verb, target):
        raise caller.denial(verb, target)


async def _emptied(issuer: Any) -> None:
    """Take what a fetch gives, also nothing."""
    from fairlead_gateway.signon.keys import ProviderUnavailable

    try:
        found = (await issuer._read((await issuer.metadata()).jwks_uri, dict))[1]
    except ProviderUnavailable:
        found = {"keys": []}
    issuer._keys = {key["kid"]: key for key in found["keys"]}
    issuer._keys_until = issuer._monotonic() + 60


async def _same_family(accounts: Any, text: str, address: str = "") -> CliSignIn:
    """Open the next session without a look at which token of the family was shown."""
    from fairlead_gateway.access.accounts import SignInAt, family_digest

    row = await accounts.credentials.family(family_digest(text))
    if row is None:
        raise HttpError(400, "invalid_grant", "")
    return await accounts.open_cli(row.principal, SignInAt("local"))


_SOCKET = f"{ACCESS}/test_socket_attacks.py"
_ATTACKS = f"{ACCESS}/test_attacks.py"
_OIDC = f"{SIGN_ON}/test_oidc.py"
_GRANTS = f"{SIGN_ON}/test_command_grants.py"
_JWT = f"{SIGN_ON}/test_jwt_check.py"
_SIGN_IN = f"{ROUTES}/test_sign_in.py"
_SCIM = "tests/gateway/directories/test_scim.py"

#: {name of the row: attack, test and guard}
ATTACKS: dict[str, Row] = {
    "rebinding": Row(
        "A1",
        "foreign Host, absolute form, two Hosts",
        f"{_SOCKET}::test_a_foreign_name_or_page_is_refused_before_the_credential_is_read",
        {
            "fairlead_gateway.server.request_guard.RequestGuard.check": _nothing,
        },
    ),
    "foreign-page": Row(
        "A2",
        "methods, origins, Sec-Fetch-*, types of content with a cookie",
        f"{_SOCKET}::test_every_method_with_a_cookie_needs_our_own_page",
        {
            "fairlead_gateway.access.callers.check_page": _nothing,
            "fairlead_gateway.server.request_guard._is_foreign": lambda *_: False,
        },
    ),
    "page-changes": Row(
        "A2",
        "every route that changes something, from a page of another site",
        f"{ACCESS}/test_browser_attacks.py::test_no_route_takes_a_change_of_another_page",
        {
            "fairlead_gateway.access.callers.check_page": _nothing,
            "fairlead_gateway.server.request_guard._is_foreign": lambda *_: False,
        },
    ),
    "forged-token": Row(
        "A9",
        "none, HS256 with the public key, key or crit in the header, cut signature",
        f"{_JWT}::test_a_forged_token_is_refused",
        {
            "fairlead_gateway.signon.jwt_check._SIGNATURE_ALONE": {"verify_signature": False},
            "fairlead_gateway.signon.jwt_check.REFUSED_HEADERS": (),
        },
    ),
    "wrong-claim": Row(
        "A9",
        "wrong iss, aud, azp, nonce, expired",
        f"{_JWT}::test_a_token_with_one_wrong_claim_is_refused",
        {
            "fairlead_gateway.signon.jwt_check._check_issuer": _nothing,
            "fairlead_gateway.signon.jwt_check._check_times": _nothing,
        },
    ),
    "logout-as-id": Row(
        "A9",
        "logout token as ID token and back",
        f"{_JWT}::test_a_token_serves_its_own_use_alone",
        {
            "fairlead_gateway.signon.jwt_check._BY_USE": dict.fromkeys(("id", "logout", "access", "job"), _nothing),
            "fairlead_gateway.signon.jwt_check._TYPES": dict.fromkeys(
                ("id", "logout", "access", "job"), (None, "jwt", "logout+jwt", "at+jwt")
            ),
        },
    ),
    "refused-tokens-noted": Row(
        "A9",
        "each attack with a token is one line of the record",
        f"{ACCESS}/test_audit_route.py::test_each_attack_with_a_token_leaves_one_line",
        {
            "fairlead_gateway.access.accounts.Accounts.note_refused_token": _nothing,
        },
    ),
    "mix-up": Row(
        "A10",
        "state of another browser, answer of another provider",
        f"{_OIDC}::test_an_answer_that_is_not_of_this_sign_in_is_refused",
        {
            "fairlead_gateway.signon.oidc.secrets.compare_digest": _true,
        },
    ),
    "other-provider": Row(
        "A10",
        "begun at one provider, ended at another",
        f"{_OIDC}::test_a_sign_in_begun_at_one_provider_does_not_end_at_another",
        {
            "fairlead_gateway.signon.oidc._PURPOSE": "one",
            "fairlead_gateway.signon.sealing.Sealing.open": lambda _self, _text, _purpose: None,
        },
    ),
    "kid-flood": Row(
        "A10",
        "flood of unknown kids",
        f"{SIGN_ON}/test_keys.py::test_a_flood_of_unknown_kids_leads_to_one_fetch_a_minute",
        {
            "fairlead_gateway.signon.keys.REFETCH_S": 0.0,
        },
    ),
    "keys-away": Row(
        "A10",
        "JWKS down, broken, empty, huge, redirected",
        f"{SIGN_ON}/test_keys.py::test_a_failed_fetch_keeps_the_old_keys",
        {
            "fairlead_gateway.signon.keys.Issuer._refetch": _emptied,
        },
        "ProviderUnavailable",
    ),
    "same-mail": Row(
        "A11",
        "same e-mail at another person or provider",
        f"{ACCESS}/test_accounts.py::test_an_e_mail_address_is_the_key_of_no_account",
        {
            "fairlead_gateway.access.accounts.identity_key": lambda identity: "identity.same",
        },
    ),
    "overage": Row(
        "A11",
        "groups that the provider left out",
        f"{_OIDC}::test_groups_that_are_left_out_are_an_error",
        {
            "fairlead_gateway.signon.oidc.OidcProvider._groups": lambda _self, claims: [],
        },
    ),
    "group-names": Row(
        "A11",
        "groups of two providers with one name",
        f"{SIGN_ON}/test_settings.py::test_groups_of_two_providers_never_have_one_name",
        {
            "fairlead_gateway.signon.settings._check_prefixes": _nothing,
        },
    ),
    "open-streams": Row(
        "A12",
        "stream open while the person is suspended, or the token or role taken",
        f"{_SOCKET}::test_open_streams_end_and_none_reopens[_take_role]",
        {
            "fairlead_gateway.routes.events.end_of": lambda *_: lambda: "",
            "fairlead_gateway.routes.job_logs.end_of": lambda *_: lambda: "",
        },
        "TimeoutError",
    ),
    "kept-connection": Row(
        "A12",
        "next request of a connection that was admitted",
        f"{_SOCKET}::test_the_next_request_of_a_connection_is_refused",
        {
            "fairlead_gateway.access.caller.Caller.ended": lambda *_: "",
            "fairlead_gateway.access.caller.Caller.may": _true,
        },
    ),
    "late-body": Row(
        "A12",
        "body that comes after the right is gone",
        f"{_SOCKET}::test_a_body_that_comes_after_the_right_is_gone_changes_nothing",
        {
            "fairlead_gateway.access.caller.Caller.may": _true,
            "fairlead_gateway.access.caller.Caller.ended": lambda *_: "",
        },
    ),
    "provider-logout": Row(
        "A12",
        "session ended at the provider, with a command that sleeps",
        f"{SIGN_ON}/test_logout.py::test_a_logout_ends_a_command_that_slept_for_hours",
        {
            "fairlead_gateway.access.accounts.Accounts.end_sessions_of": _zero,
        },
    ),
    "guessed-code": Row(
        "A13",
        "user codes guessed",
        f"{_GRANTS}::test_codes_cannot_be_guessed",
        {
            "fairlead_gateway.signon.command_grants.CommandGrants._count": _later,
        },
    ),
    "approval-link": Row(
        "A13",
        "approval link sent to an admin, form of another site",
        f"{_GRANTS}::test_only_a_page_of_ours_in_a_browser_session_allows_a_command",
        {
            "fairlead_gateway.access.callers.check_page": _nothing,
            "fairlead_gateway.server.request_guard._is_foreign": lambda *_: False,
        },
    ),
    "refresh-reuse": Row(
        "A13",
        "refresh token used twice",
        f"{_SIGN_IN}::test_a_refresh_token_that_is_used_twice_ends_the_whole_sign_in",
        {
            "fairlead_gateway.access.accounts.Accounts.refresh": _same_family,
        },
    ),
    "token-makes-token": Row(
        "A14",
        "token makes a token",
        f"{ROUTES}/test_people_and_tokens.py::test_a_token_is_shown_once_and_never_makes_a_token",
        {
            "fairlead_gateway.routes.tokens.require_fresh": _later,
            "fairlead_gateway.routes.sign_in.require_fresh": _later,
            "fairlead_rights.state.AccessState.may_issue": _true,
        },
    ),
    "wider-token": Row(
        "A14",
        "token does more than its owner, or after it",
        f"{ROUTES}/test_people_and_tokens.py::test_a_token_never_does_what_its_owner_may_not",
        {
            "fairlead_rights.access_list.AccessList.may": _true,
        },
    ),
    "grants-more": Row(
        "A14",
        "grant of what one lacks",
        f"{ROUTES}/test_access.py::test_nobody_grants_more_than_they_hold",
        {
            "fairlead_gateway.routes.access.require_grantable": _nothing,
            "fairlead_rights.state.AccessState.may_grant": _true,
        },
    ),
    "path-prefix": Row(
        "A15",
        "research/vis against research/vision",
        f"{ACCESS}/test_guard.py::test_scopes_are_compared_by_path_segments",
        {
            "fairlead_rights.access_list.covers": _by_prefix,
        },
    ),
    "odd-paths": Row(
        "A15",
        "dots, case, look-alikes, empty segments in paths",
        f"{_ATTACKS}::test_a_path_like_another_is_another",
        {
            "fairlead_rights.access_list.covers": _by_prefix,
        },
    ),
    "queue-made-again": Row(
        "A15",
        "queue removed and made again under its name",
        f"{ROUTES}/test_queue_roles.py::test_a_removed_queue_keeps_nobodys_rights",
        {
            "fairlead_rights.access_list.AccessList.end_scope": lambda *_: 0,
        },
    ),
    "stated-user": Row(
        "A16",
        "X-Fairlead-User forged",
        f"{_SOCKET}::test_a_stated_user_is_refused_on_every_path",
        {
            "fairlead_gateway.access.callers._no_user_header": lambda: None,
        },
    ),
    "forwarded": Row(
        "A16",
        "X-Forwarded-*, X-Original-* forged",
        f"{_SOCKET}::test_a_forged_header_changes_nothing",
        {
            "fairlead_gateway.access.callers._address": lambda scope: str(
                dict(scope["headers"]).get(b"x-forwarded-for")
            ),
        },
    ),
    "others-named": Row(
        "A17",
        "lists, counts, map, events, usage",
        f"{ACCESS}/test_sight.py::test_nothing_of_others_is_in_any_answer",
        {
            "fairlead_gateway.access.caller.Caller.may": _true,
        },
    ),
    "reasons-name-others": Row(
        "A17",
        "why, dry run, time travel",
        f"{ACCESS}/test_sight.py::test_reasons_name_no_other_user",
        {
            "fairlead_gateway.access.redaction.scrub": _given(1),
            "fairlead_gateway.routes.why.shown_explanation": _given(1),
            "fairlead_gateway.routes.query.shown_job": _given(1),
        },
    ),
    "hidden-jobs": Row(
        "A17",
        "planned moves, preemptions, refusals",
        f"{ACCESS}/test_hidden_jobs.py::test_a_dry_run_counts_jobs_that_might_yield",
        {
            "fairlead_gateway.routes.submit.shown_dry_run": _given(1),
        },
    ),
    "hidden-or-absent": Row(
        "A17",
        "not found and not yours told apart",
        f"{ACCESS}/test_guard.py::test_a_hidden_thing_and_one_that_is_not_there_are_answered_alike",
        {"fairlead_gateway.access.caller.Caller.require": _denied},
    ),
    "terminal": Row(
        "A19",
        "control sequences in output of jobs: title, clipboard (OSC 52), cursor",
        "tests/cli/render/test_terminal.py::test_colours_alone_reach_a_terminal",
        {"fairlead.render.terminal.TerminalFilter.feed": _given(1)},
    ),
    "terminal-names": Row(
        "A19",
        "control sequences in names of jobs, labels and messages",
        "tests/cli/render/test_terminal.py::test_names_control_no_terminal",
        {"fairlead.render.terminal.harmless": _given(0)},
    ),
    "markup": Row(
        "A19",
        "markup in what a page shows",
        f"{_SIGN_IN}::test_the_page_of_a_link_shows_a_code_as_text",
        {"fairlead_gateway.routes.sign_in.escape": _given(0)},
    ),
    "markup-machine": Row(
        "A19",
        "markup in the name of a machine that a command states",
        f"{_GRANTS}::test_a_command_without_a_browser_signs_in_by_a_typed_code",
        {"fairlead_gateway.routes.sign_on_pages.escape": _given(0)},
    ),
    "password-flood": Row(
        "A21",
        "flood of sign-ins, names of 1 MiB",
        f"{_SIGN_IN}::test_sign_ins_are_bounded_before_anything_is_hashed",
        {"fairlead_gateway.access.passwords.Passwords.require_room": _later},
    ),
    "hash-flood": Row(
        "A21",
        "many hashes at once",
        f"{ACCESS}/test_passwords.py::test_one_hash_runs_at_a_time_and_few_wait",
        {"fairlead_gateway.access.passwords.Passwords._require_turn": _nothing},
    ),
    "token-flood": Row(
        "A21",
        "flood of unknown tokens",
        f"{ACCESS}/test_guard.py::test_a_flood_of_unknown_tokens_is_bounded_before_the_bus_is_asked",
        {"fairlead_gateway.access.callers.Callers._require_calm": _nothing},
    ),
    "odd-names": Row(
        "A21",
        "long names, line breaks in names",
        f"{ROUTES}/test_people_and_tokens.py::test_text_of_people_has_bounds",
        {
            "fairlead_gateway.routes.people.require_text": _nothing,
            "fairlead_gateway.routes.people.require_login": _nothing,
        },
    ),
    "record-flood": Row(
        "A21",
        "flood of refusals that hides what others do",
        f"{ACCESS}/test_record_attacks.py::test_a_flood_of_refusals_hides_no_access_of_others",
        {"fairlead_gateway.access.audit_trail.AuditTrail._is_flood": lambda *_: False},
    ),
    "scim-create-twice": Row(
        "A22",
        "person created twice",
        f"{_SCIM}::test_an_attack_fails[second_create_is_refused]",
        {"fairlead_gateway.directories.scim.ScimUsers._require_free": _later},
    ),
    "scim-filtered-remove": Row(
        "A22",
        "remove with a filter path",
        f"{_SCIM}::test_an_attack_fails[filtered_remove_takes_only_what_it_names]",
        {
            "fairlead_gateway.directories.scim_patch._apply_to_chosen": (
                lambda changed, operation, place, chosen: changed.pop(place.attribute.name, None)
            ),
        },
    ),
    "scim-another-admin": Row(
        "A22",
        "account of a directory linked to an admin",
        f"{_SCIM}::test_an_attack_fails[another_account_never_becomes_an_admin]",
        {"fairlead_gateway.directories.scim.ScimUsers._require_may_link": _nothing},
    ),
    "scim-by-hand": Row(
        "A22",
        "suspension by hand undone by the directory",
        f"{_SCIM}::test_a_suspension_by_hand_outlasts_the_directory",
        {"fairlead_gateway.access.directory_people.DirectoryPeople.set_active": _admits},
    ),
    "new-person": Row(
        "A23",
        "new person without roles",
        f"{ROUTES}/test_access.py::test_a_new_person_has_no_right_at_all",
        {
            "fairlead_rights.access_list.AccessList.may": _true,
            "fairlead_rights.access_list.AccessList.may_anywhere": _true,
        },
    ),
    "empty-groups": Row(
        "A23",
        "empty list of groups",
        f"{_OIDC}::test_an_empty_list_of_groups_admits_nobody",
        {"fairlead_gateway.signon.oidc.OidcProvider._require_admitted": _nothing},
    ),
    "misspelt-setting": Row(
        "A23",
        "misspelt settings",
        f"{SIGN_ON}/test_settings.py::test_a_wrong_file_refuses_the_start",
        {
            "fairlead_gateway.signon.settings.msgspec.convert": _lenient,
            "fairlead_gateway.signon.settings._check_names": _nothing,
        },
    ),
    "moved-setting": Row(
        "A23",
        "settings that have moved",
        f"{SIGN_ON}/test_settings.py::test_a_setting_that_has_moved_refuses_the_start",
        {"fairlead_gateway.access.settings.REMOVED": {}},
    ),
    "redirect-target": Row(
        "A24",
        "redirect after a sign-in to another host",
        f"{_GRANTS}::test_a_local_sign_in_continues_at_a_path_of_ours",
        {
            "fairlead_gateway.routes.sign_in.safe_target": _given(0),
            "fairlead_gateway.routes.sign_on.safe_target": _given(0),
        },
    ),
    "command-redirect": Row(
        "A24",
        "code sent to an address that is not of the own machine",
        f"{_GRANTS}::test_a_command_on_this_machine_signs_in_by_a_redirect",
        {
            "fairlead_gateway.signon.command_grants.require_loopback": _nothing,
            "fairlead_gateway.routes.sign_on.require_loopback": _nothing,
        },
    ),
    "link-twice": Row(
        "A24",
        "sign-in link used twice",
        f"{_SIGN_IN}::test_a_link_signs_in_once",
        {"fairlead_gateway.access.credentials.Credentials.take_link": _kept_link},
    ),
}
