// A certified OpenID provider for the tests: one client, one account per login name, accounts without passwords.
// Arguments: port, redirect URI, logout URI, address to return to after a logout.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const [port, redirect, logout, back] = process.argv.slice(2);
const issuer = `http://localhost:${port}`;

// Groups by account; the tests sign in as these.
const groups = { ann: ['staff', 'vision'], eve: [] };

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'fairlead',
    client_secret: 'a secret of the tests',
    redirect_uris: [redirect],
    post_logout_redirect_uris: [back],
    backchannel_logout_uri: logout,
    backchannel_logout_session_required: true,
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
  }],
  cookies: { keys: ['tests'] },
  claims: { openid: ['sub'], profile: ['name', 'preferred_username', 'groups'], email: ['email'] },
  conformIdTokenClaims: false,
  features: {
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: { enabled: true },
    devInteractions: { enabled: true },
  },
  rotateRefreshToken: true,
  // Its own dispatcher refuses loopback, where the gateway of a test is.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  issueRefreshToken: async (ctx, client, code) => code.scopes.has('offline_access'),
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} of the tests`, preferred_username: id, email: `${id}@example.org`, groups: groups[id] ?? [] }),
  }),
  ttl: { AccessToken: 60, IdToken: 3600, Session: 3600, Grant: 3600, Interaction: 600, RefreshToken: 3600 },
});
provider.on('backchannel.error', (ctx, error) => console.error(error));
provider.on('server_error', (ctx, error) => console.error(error));
createServer(provider.callback()).listen(Number(port), '127.0.0.1', () => console.log('listening'));
