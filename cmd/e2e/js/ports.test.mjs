// Ports of a sandbox, by headers and by host names through a proxy.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { test, describe, before } from 'node:test';
import { Sandbox, create, generation, routed, serverURL, until } from './helpers.mjs';

const { ProxyAgent, fetch: proxied } = createRequire(new URL(`../${generation}/package.json`, import.meta.url))('undici');
const domain = 'sandboxes.example.test'; // resolves nowhere
const traffic = (sandbox) => (sandbox.trafficAccessToken ? { 'E2B-Traffic-Access-Token': sandbox.trafficAccessToken } : {});

/** Starts a web server in a sandbox and waits until it answers. */
async function serve(sandbox, port) {
  await sandbox.files.write('/home/user/site/index.html', `served on ${port}\n`);
  await sandbox.commands.run(`exec python3 -m http.server ${port} --directory /home/user/site --bind 127.0.0.1`, { background: true, timeoutMs: 0 });
  await until(async () => (await fetch(serverURL, { headers: { ...routed(sandbox, port), ...traffic(sandbox) } })).status === 200, `port ${port} to answer`);
}

describe('a port', () => {
  let sandbox;
  before(async () => {
    sandbox = await create();
    await serve(sandbox, 3000);
  });

  test('by headers', async () => {
    const res = await fetch(`${serverURL}/index.html`, { headers: routed(sandbox, 3000) });
    assert.equal(await res.text(), 'served on 3000\n');
  });

  for (const proxyTunnel of [false, true]) {
    test(`by the host name of getHost, through ${proxyTunnel ? 'CONNECT' : 'a plain proxy'}`, async () => {
      const dispatcher = new ProxyAgent({ uri: serverURL, proxyTunnel });
      const res = await proxied(`http://${sandbox.getHost(3000)}/index.html`, { dispatcher });
      assert.equal(res.status, 200);
      assert.equal(await res.text(), 'served on 3000\n');
      await dispatcher.close();
    });
  }

  test('that is closed is E2B\'s 502', async () => {
    const res = await fetch(serverURL, { headers: routed(sandbox, 3999) });
    assert.equal(res.status, 502);
    assert.deepEqual(await res.json(), { sandboxId: sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 3999, code: 502 });
  });

  test('of a sandbox that is not there is E2B\'s 502', async () => {
    const res = await fetch(serverURL, { headers: { 'E2b-Sandbox-Id': 'inobody', 'E2b-Sandbox-Port': '3000' } });
    assert.equal(res.status, 502);
    assert.deepEqual(await res.json(), { sandboxId: 'inobody', message: 'The sandbox was not found', code: 502 });
  });
});

test('with allowPublicTraffic false a port needs the traffic token', async () => {
  const sandbox = await Sandbox.create({ network: { allowPublicTraffic: false } });
  try {
    assert.equal(typeof sandbox.trafficAccessToken, 'string');
    await serve(sandbox, 3000);
    const get = (headers) => fetch(serverURL, { headers: { ...routed(sandbox, 3000), ...headers } });
    assert.equal((await get(traffic(sandbox))).status, 200);
    const without = await get({});
    assert.equal(without.status, 403);
    assert.match((await without.json()).message, /traffic access token.*missing/);
    const wrong = await get({ 'E2B-Traffic-Access-Token': 'wrong' });
    assert.equal(wrong.status, 403);
    assert.match((await wrong.json()).message, /invalid/);
    assert.equal((await sandbox.runCode('6*7')).text, '42', 'the SDK sends it by itself');
    assert.equal((await sandbox.commands.run('echo fine')).stdout, 'fine\n', 'envd has a token of its own');
    const again = await Sandbox.connect(sandbox.sandboxId);
    assert.equal(again.trafficAccessToken, sandbox.trafficAccessToken);
  } finally {
    await sandbox.kill();
  }
});

test('maskRequestHost changes what the program sees', async () => {
  const sandbox = await Sandbox.create({ network: { maskRequestHost: 'localhost:${PORT}' } });
  try {
    await sandbox.files.write('/tmp/echo.py', [
      'import http.server, json',
      'class H(http.server.BaseHTTPRequestHandler):',
      '    def do_GET(self):',
      '        body = json.dumps({k.lower(): v for k, v in self.headers.items()}).encode()',
      '        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)',
      'http.server.HTTPServer(("127.0.0.1", 3000), H).serve_forever()',
    ].join('\n'));
    await sandbox.commands.run('exec python3 /tmp/echo.py', { background: true, timeoutMs: 0 });
    const dispatcher = new ProxyAgent({ uri: serverURL, proxyTunnel: false });
    const get = () => proxied(`http://3000-${sandbox.sandboxId}.${domain}/`, { dispatcher });
    await until(async () => (await get()).status === 200, 'the port to answer');
    const seen = await (await get()).json();
    assert.equal(seen.host, 'localhost:3000');
    assert.equal(seen['x-forwarded-host'], `3000-${sandbox.sandboxId}.${domain}`);
    await dispatcher.close();
  } finally {
    await sandbox.kill();
  }
});

test('the proxy leads nowhere else', async () => {
  // A server outside every sandbox must not be reached through Cubby.
  const outside = createServer((_, res) => res.end('outside')).listen(0, '127.0.0.1');
  await new Promise((done) => outside.once('listening', done));
  try {
    const { port } = outside.address();
    for (const proxyTunnel of [false, true]) {
      const dispatcher = new ProxyAgent({ uri: serverURL, proxyTunnel });
      const text = await proxied(`http://127.0.0.1:${port}/`, { dispatcher }).then((res) => res.text(), (err) => String(err));
      assert.doesNotMatch(text, /^outside$/);
      await dispatcher.close();
    }
  } finally {
    outside.close();
  }
});
