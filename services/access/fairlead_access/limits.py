"""Every bound of the access core, by name."""

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS

PRINCIPALS_MAX = 100_000
GROUPS_MAX = 20_000
#: Members of one group from one source.
MEMBERS_MAX = 100_000
#: Ids in one GroupSynced.
MEMBERS_CHUNK = 1_000
GRANTS_MAX = 200_000
TOKENS_MAX = 200_000
TOKENS_OF_PRINCIPAL_MAX = 100
#: Beyond it the principal's oldest session ends.
SESSIONS_OF_PRINCIPAL_MAX = 32
TOKEN_LIFE_NS_MAX = 366 * DAY_NS
SESSION_LIFE_NS_MAX = 12 * HOUR_NS
#: Verbs and scopes of one token.
TOKEN_SCOPES_MAX = 32
#: Tokens and sessions that expire in one commit.
EXPIRED_CHUNK = 500
