"""Policy file: idle policies as people write them, decoded strictly and converted to integers.

    scopes:
      global:
        - {rule: utilization, below: {gpu: 5%, network: 10KiB/s}, after: 20m, notice: 5m, action: stop, mode: on_demand,
           extend: 2h, extensions: 2}
      "project:llm":
        - {rule: lifetime, after: 7d, notice: 1h, action: warn, mode: always}
      "user:ada": []          # no policies of its own

`read_policy_file` returns the policies of each scope, or every mistake at once, each at its path in the file;
`read_policies` returns those of one scope. The telemetry service makes the checks that need the policies of
other scopes (bounds of the wider ones). `policy_words` is the inverse.
"""

from functools import partial
from typing import Any, Literal, get_args

import msgspec

from fairlead_schemas.policies.idle import (
    IdleAction,
    IdleMode,
    IdlePolicy,
    IdleRule,
    IdleSignal,
    parse_threshold,
    threshold_word,
)
from fairlead_schemas.queuefile.amounts import duration_word
from fairlead_schemas.units.ids import PROJECT_CHARS_MAX, is_token
from fairlead_schemas.units.quantities import parse_duration
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import ErrorCollector, InvalidDocument, shown

SCOPES_MAX = 100
EXTENSIONS_MAX = 1000
NOTICE = "5m"
_SIGNALS: dict[str, IdleSignal] = {signal: signal for signal in get_args(IdleSignal)}
_PARSERS = {signal: partial(parse_threshold, signal) for signal in _SIGNALS.values()}


class IdlePolicyWords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Idle policy for one rule at one scope, in people's units."""

    rule: IdleRule
    #: Without a mode, the policy only reports the action that it would have taken.
    mode: IdleMode = "dry_run"
    action: IdleAction
    #: {signal: threshold}, such as {gpu: 5%, memory_traffic: 2%, power: 20W, network: 10KiB/s, cpu: 500m}; for utilization.
    below: dict[str, str | int | float] = {}
    after: str | int
    notice: str | int = NOTICE
    extend: str | int = 0
    extensions: int = 0
    shrink: str | int = 0
    kinds: list[Literal["batch", "session", "service"]] = []
    afterMax: str | int = 0  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    maySoften: bool = False  # noqa: N815 -- as above


class IdleScopeWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policies of one scope, all of them."""

    policies: list[IdlePolicyWords]


class IdleFileWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy file: scopes ("global", "project:<name>", "user:<name>") and all policies of each."""

    scopes: dict[str, list[IdlePolicyWords]]


class InvalidPolicies(InvalidDocument):
    """A policy file was refused."""


def is_scope(text: str) -> bool:
    """Return True if the text is a valid scope of policies."""
    kind, _, name = text.partition(":")
    if kind == "project":
        return 0 < len(name) <= PROJECT_CHARS_MAX and name.isprintable()
    return text == "global" or (kind == "user" and is_token(name))


def read_policy_file(value: Any) -> dict[str, tuple[IdlePolicy, ...]]:
    """{scope: its policies} of a file given as plain values (of YAML or JSON). Raises InvalidPolicies with every mistake."""
    reading = ErrorCollector()
    fields = reading.fields(value, IdleFileWords, "")
    found: dict[str, tuple[IdlePolicy, ...]] = {}
    for scope, words, at in reading.entries(fields.get("scopes", {}), "scopes"):
        if not is_scope(scope):
            reading.wrong(at, f'expected "global", "project:<name>" or "user:<name>", found {shown(scope)}')
        found[scope] = _policies(reading, words, at)
    if not found and not reading.errors:
        reading.wrong("scopes", "expected at least one scope, found none")
    if len(found) > SCOPES_MAX:
        reading.wrong("scopes", f"expected at most {SCOPES_MAX} scopes, found {len(found)}; split the file")
    reading.refuse(InvalidPolicies)
    return found


def read_policies(value: Any) -> tuple[IdlePolicy, ...]:
    """The policies of one scope, given as {"policies": [...]}. Raises InvalidPolicies."""
    reading = ErrorCollector()
    fields = reading.fields(value, IdleScopeWords, "")
    policies = _policies(reading, fields.get("policies", []), "policies")
    reading.refuse(InvalidPolicies)
    return policies


def _policies(reading: ErrorCollector, value: Any, at: str) -> tuple[IdlePolicy, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        reading.wrong(at, f"expected a list of policies, found {shown(value)}")
        return ()
    found = [_policy(reading, words, f"{at}[{index}]") for index, words in enumerate(value)]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType] -- plain values
    rules = [policy.rule for policy in found]
    for index, rule in enumerate(rules):
        if rule in rules[:index] and not reading.errors:
            reading.wrong(f"{at}[{index}].rule", f"{rule} is given twice; a scope has one policy of each rule")
    return tuple(found)


def _policy(reading: ErrorCollector, words: Any, at: str) -> IdlePolicy:
    errors = len(reading.errors)
    fields = reading.fields(words, IdlePolicyWords, at)
    times = {
        name: reading.amount(parse_duration, fields.get(name, default), f"{at}.{name}")
        for name, default in (("after", 1), ("notice", NOTICE), ("extend", 0), ("shrink", 0), ("afterMax", 0))
    }
    policy = IdlePolicy(
        rule=fields.get("rule", "lifetime"), action=fields.get("action", "note"), mode=fields.get("mode", "dry_run"),
        below=_below(reading, fields.get("below", {}), f"{at}.below"), after_ns=times["after"], notice_ns=times["notice"],
        extend_ns=times["extend"], shrink_ns=times["shrink"], after_max_ns=times["afterMax"],
        extensions_max=reading.whole(fields.get("extensions", 0), f"{at}.extensions", 0, EXTENSIONS_MAX),
        kinds=tuple(fields.get("kinds", ())), may_soften=fields.get("maySoften", False),
    )  # fmt: skip
    if len(reading.errors) == errors:  # else the fields are not what was written
        _check(reading, policy, at)
    return policy


def _below(reading: ErrorCollector, value: Any, at: str) -> dict[IdleSignal, int]:
    found: dict[IdleSignal, int] = {}
    for word, threshold, path in reading.entries(value, at):
        signal = _SIGNALS.get(word)
        if signal is None:
            reading.wrong(path, f"unknown signal; expected one of {', '.join(_SIGNALS)}{did_you_mean(word, _SIGNALS)}")
        else:
            errors = len(reading.errors)
            found[signal] = reading.amount(_PARSERS[signal], threshold, path)
            if not found[signal] and len(reading.errors) == errors:
                reading.wrong(path, f"expected more than 0, found {shown(threshold)}: nothing is below 0")
    return found


def _check(reading: ErrorCollector, policy: IdlePolicy, at: str) -> None:
    """Note contradictions between the fields of one policy."""
    if policy.rule == "utilization" and not policy.below:
        reading.wrong(f"{at}.below", "expected thresholds such as {gpu: 5%, network: 10KiB/s}, found none")
    if policy.rule != "utilization" and policy.below:
        reading.wrong(f"{at}.below", f"rule {policy.rule} has no thresholds; leave it out, or write rule: utilization")
    if not policy.after_ns:
        reading.wrong(f"{at}.after", 'expected more than 0, such as "20m"')
    if policy.action == "shrink" and not policy.shrink_ns:
        reading.wrong(f"{at}.shrink", 'action shrink needs what is left of the lease, such as "1h"')
    if policy.action != "shrink" and policy.shrink_ns:
        reading.wrong(f"{at}.shrink", f"action {policy.action} cuts no lease; leave it out, or write action: shrink")
    if bool(policy.extensions_max) != bool(policy.extend_ns):
        reading.wrong(
            f"{at}.extensions", "extend (how long) and extensions (how many) go together; give both, or neither"
        )
    if 0 < policy.after_max_ns < policy.after_ns:
        reading.wrong(f"{at}.afterMax", "expected no less than after: it is the longest that a narrower scope may set")


def policy_words(policy: IdlePolicy) -> dict[str, Any]:
    """The inverse, as plain values, defaults left out."""
    words: dict[str, Any] = {"rule": policy.rule, "action": policy.action, "mode": policy.mode}
    if policy.below:
        words["below"] = {signal: threshold_word(signal, value) for signal, value in policy.below.items()}
    words["after"], words["notice"] = duration_word(policy.after_ns), duration_word(policy.notice_ns)
    for name, ns in (("extend", policy.extend_ns), ("shrink", policy.shrink_ns), ("afterMax", policy.after_max_ns)):
        if ns:
            words[name] = duration_word(ns)
    if policy.extensions_max:
        words["extensions"] = policy.extensions_max
    if policy.kinds:
        words["kinds"] = list(policy.kinds)
    if policy.may_soften:
        words["maySoften"] = True
    return words
