// Code: results, streams, contexts, languages.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { create, error, until } from './helpers.mjs';

let sandbox;
before(async () => {
  sandbox = await create({ envs: { GLOBAL: 'of the sandbox' } });
});
const run = (code, opts) => sandbox.runCode(code, opts);

describe('runCode', () => {
  test('the last expression is the result', async () => {
    const ex = await run('x = 41\nx + 1');
    assert.equal(ex.text, '42');
    assert.equal(ex.results[0].isMainResult, true);
    assert.equal(ex.error, undefined);
    assert.equal((await run('x')).text, '41', 'state is kept');
  });

  test('counts its executions', async () => {
    const first = await run('1');
    const second = await run('1');
    assert.equal(second.executionCount, first.executionCount + 1);
  });

  test('streams, as it runs', async () => {
    const seen = [];
    const ex = await run('import sys\nprint("out")\nprint("err", file=sys.stderr)\n"value"', {
      onStdout: (m) => { seen.push(['out', m.line, m.error, typeof m.timestamp]); },
      onStderr: (m) => { seen.push(['err', m.line, m.error, typeof m.timestamp]); },
      onResult: (r) => { seen.push(['result', r.text]); },
    });
    assert.deepEqual(ex.logs, { stdout: ['out\n'], stderr: ['err\n'] });
    assert.deepEqual(seen.toSorted?.() ?? seen.sort(), [['err', 'err\n', true, 'number'], ['out', 'out\n', false, 'number'], ['result', 'value']]);
  });

  test('a line comes before the end of the code', async () => {
    let release;
    const ex = await run('import os, time\nprint("waiting", flush=True)\nwhile not os.path.exists("/tmp/release"): time.sleep(0.05)\nprint("released")', {
      onStdout: (m) => { if (m.line.includes('waiting')) release = sandbox.files.write('/tmp/release', ''); },
    });
    await release;
    assert.equal(ex.logs.stdout.join(''), 'waiting\nreleased\n');
  });

  test('an error is part of the execution', async () => {
    const errors = [];
    const ex = await run('def f():\n    return 1/0\nf()', { onError: (e) => { errors.push(e.name); } });
    assert.equal(ex.error.name, 'ZeroDivisionError');
    assert.equal(ex.error.value, 'division by zero');
    assert.match(ex.error.traceback, /ZeroDivisionError/);
    assert.doesNotMatch(ex.error.traceback, /\x1b\[/);
    assert.deepEqual(errors, ['ZeroDivisionError']);
    assert.equal((await run('def')).error.name, 'SyntaxError');
  });

  test('envs of one call do not stay', async () => {
    const code = 'import os; os.environ.get("GLOBAL"), os.environ.get("MINE")';
    assert.equal((await run(code)).text, "('of the sandbox', None)");
    assert.equal((await run(code, { envs: { GLOBAL: 'of the call', MINE: '1' } })).text, "('of the call', '1')");
    assert.equal((await run(code)).text, "('of the sandbox', None)");
  });

  test('rich results', async () => {
    const ex = await run([
      'from IPython.display import display, HTML, Markdown, JSON, Javascript, Latex, SVG',
      'display(HTML("<b>x</b>")); display(Markdown("# x")); display(Latex("$x$")); display(SVG("<svg xmlns=\'http://www.w3.org/2000/svg\'/>"))',
      'display(Javascript("1")); display(JSON({"a": 1}))',
      '{"b": [1, 2]}',
    ].join('\n'));
    assert.equal(ex.error, undefined, ex.error?.traceback);
    const [html, markdown, latex, svg, javascript, json, main] = ex.results;
    assert.equal(html.html, '<b>x</b>');
    assert.equal(markdown.markdown, '# x');
    assert.equal(latex.latex, '$x$');
    assert.match(svg.svg, /<svg/);
    assert.equal(javascript.javascript, '1');
    assert.deepEqual(json.json, { a: 1 });
    assert.equal(main.isMainResult, true);
    assert.equal(html.isMainResult, false);
    assert.equal(main.text, "{'b': [1, 2]}");
  });

  test('a chart has its picture and its data', async (t) => {
    if ((await run('import importlib.util; importlib.util.find_spec("matplotlib") is None')).text === 'True') {
      return t.skip('matplotlib is not installed for the Python of this machine');
    }
    const ex = await run('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [1, 4, 9], label="squares")\nplt.title("T")\nplt.xlabel("time (s)")\nplt.ylabel("way (m)")\nplt.show()', { timeoutMs: 120_000 });
    assert.equal(ex.error, undefined, ex.error?.traceback);
    const shown = ex.results.find((r) => r.png);
    assert.equal(Buffer.from(shown.png, 'base64').subarray(1, 4).toString(), 'PNG');
    assert.equal(shown.chart.type, 'line');
    assert.equal(shown.chart.title, 'T');
    assert.equal(shown.chart.x_label, 'time (s)');
    assert.equal(shown.chart.x_unit, 's');
    assert.equal(shown.chart.y_unit, 'm');
    assert.deepEqual(shown.chart.elements[0].points, [[1, 1], [2, 4], [3, 9]]);
    assert.equal(shown.chart.elements[0].label, 'squares');
    assert.ok(shown.formats().includes('png'));
  });

  test('a data frame has its data', async (t) => {
    if ((await run('import importlib.util; importlib.util.find_spec("pandas") is None')).text === 'True') {
      return t.skip('pandas is not installed for the Python of this machine');
    }
    const ex = await run('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})', { timeoutMs: 120_000 });
    assert.deepEqual(ex.results[0].data, { a: [1, 2], b: ['x', 'y'] });
    assert.match(ex.results[0].html, /<table/);
  });

  test('much output, whole', async () => {
    const ex = await run('print("y" * 16_000_000)', { timeoutMs: 120_000 });
    const text = ex.logs.stdout.join('');
    assert.equal(text.length, 16_000_001);
    assert.equal(text.replaceAll('y', ''), '\n');
  });

  test('text that is not ASCII', async () => {
    const ex = await run('print("žluťoučký 🐻 " * 1000)\n"🐻"');
    assert.equal(ex.logs.stdout.join(''), 'žluťoučký 🐻 '.repeat(1000) + '\n');
    assert.equal(ex.text, '🐻');
  });

  test('a time-out interrupts the code and keeps the state', async () => {
    await run('kept = "yes"');
    await assert.rejects(run('import time\ntime.sleep(600)', { timeoutMs: 1_000 }), error('TimeoutError', /timeoutMs/));
    assert.equal((await run('kept', { timeoutMs: 60_000 })).text, 'yes');
  });

  test('a kernel that dies is replaced', async () => {
    await run('import os\nos._exit(3)').catch(() => {});
    assert.equal((await run('6 * 7')).text, '42');
  });

  test('files, commands and code see one machine', async () => {
    await run('open("/home/user/from-code", "w").write("code")');
    assert.equal(await sandbox.files.read('from-code'), 'code');
    assert.equal((await sandbox.commands.run('cat from-code')).stdout, 'code');
  });
});

describe('languages', () => {
  for (const [language, code, text] of [
    ['python', '6 * 7', '42'],
    ['javascript', 'const a = 6; a * 7', '42'],
    ['js', '6 * 7', '42'],
    ['typescript', 'const b: number = 6; b * 7', '42'],
    ['ts', 'const c: string = "4" + "2"; c', '42'],
    ['JavaScript', '[1, 2].length', '2'],
  ]) {
    test(language, async () => {
      const ex = await run(code, { language });
      assert.equal(ex.error, undefined, ex.error?.traceback);
      assert.equal(ex.text, text);
    });
  }

  test('bash', async () => {
    const ex = await run('cd /tmp; word=two; echo one; echo $word >&2', { language: 'bash' });
    assert.deepEqual(ex.logs, { stdout: ['one\n'], stderr: ['two\n'] });
    assert.deepEqual((await run('echo $word in $PWD', { language: 'bash' })).logs.stdout, ['two in /tmp\n']);
    const failed = await run('echo before; exit 3', { language: 'bash' });
    assert.equal(failed.error, undefined, 'an exit code is no error');
    assert.equal(failed.logs.stdout.join(''), 'before\n');
  });

  test('javascript: streams, errors, promises', async () => {
    const ex = await run('console.log("out"); console.error("err"); await Promise.resolve(5)', { language: 'js' });
    assert.equal(ex.text, '5');
    assert.deepEqual(ex.logs, { stdout: ['out\n'], stderr: ['err\n'] });
    const thrown = await run('throw new TypeError("no")', { language: 'js' });
    assert.equal(thrown.error.name, 'TypeError');
    assert.equal(thrown.error.value, 'no');
  });

  test('one that is not there', async () => {
    const named = error('NotFoundError', /unknown language "cobol"; this sandbox runs python/);
    await assert.rejects(run('1', { language: 'cobol' }), named);
    await assert.rejects(sandbox.createCodeContext({ language: 'cobol' }), named);
  });

  test('a folder that is refused, or not there', async () => {
    await sandbox.commands.run('mkdir -m 0700 /tmp/closed', { user: 'root' });
    await assert.rejects(sandbox.createCodeContext({ cwd: '/tmp/closed' }), error('SandboxError', /^400 /));
    await assert.rejects(sandbox.createCodeContext({ cwd: '/no/such/folder' }), error('SandboxError', /^400 /));
  });

  test('an environment that is too large', async () => {
    await assert.rejects(run('1', { envs: { BIG: 'x'.repeat(1 << 20) } }), error('SandboxError', /^413 /));
    const told = error('InvalidArgumentError', /the environment is too large: "BIG" has 1048580 bytes, and a variable can have 131071/);
    await assert.rejects(sandbox.commands.run('true', { envs: { BIG: 'x'.repeat(1 << 20) } }), told);
  });
});

describe('contexts', () => {
  test('the default ones are always there', async () => {
    const contexts = await sandbox.listCodeContexts();
    assert.ok(contexts.some((c) => c.language === 'python' && c.cwd === '/home/user'));
    assert.ok(contexts.some((c) => c.language === 'javascript'));
  });

  test('create, use, restart, remove', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' });
    assert.equal(context.language, 'python');
    assert.equal(context.cwd, '/tmp');
    assert.equal((await run('import os; apart = 1; os.getcwd()', { context })).text, '/tmp');
    assert.equal((await run('apart')).error.name, 'NameError', 'it shares nothing');
    assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id));
    await sandbox.restartCodeContext(context);
    assert.equal((await run('apart', { context })).error.name, 'NameError', 'restarted');
    assert.equal((await run('import os; os.getcwd()', { context })).text, '/tmp');
    await sandbox.removeCodeContext(context.id);
    assert.ok(!(await sandbox.listCodeContexts()).some((c) => c.id === context.id));
    await assert.rejects(run('1', { context }), error('NotFoundError', /not found/));
    await assert.rejects(sandbox.restartCodeContext(context), error('NotFoundError'));
    await assert.rejects(sandbox.removeCodeContext(context), error('NotFoundError'));
  });

  test('of another language', async () => {
    for (const [language, normal, code] of [['js', 'javascript', 'apart = 5'], ['bash', 'bash', 'echo 5']]) {
      const context = await sandbox.createCodeContext({ language });
      assert.equal(context.language, normal);
      const ex = await run(code, { context });
      assert.equal(ex.text ?? ex.logs.stdout.join('').trim(), '5');
      await sandbox.removeCodeContext(context);
    }
    await assert.rejects(sandbox.createCodeContext({ language: 'cobol' }), error('NotFoundError', /this sandbox runs python/));
  });

  test('several run side by side', async () => {
    const contexts = await Promise.all([1, 2, 3].map(() => sandbox.createCodeContext()));
    const code = (i) => `import os, time\nopen("/tmp/side-${i}", "w").close()\nwhile len([f for f in os.listdir("/tmp") if f.startswith("side-")]) < 3: time.sleep(0.05)\n"met"`;
    const all = await Promise.all(contexts.map((context, i) => run(code(i), { context })));
    assert.deepEqual(all.map((ex) => ex.text), ['met', 'met', 'met']);
    await Promise.all(contexts.map((context) => sandbox.removeCodeContext(context)));
  });

  test('executions of one context follow each other', async () => {
    const all = await Promise.all([1, 2, 3, 4].map(() => run('import time\nt = time.time(); time.sleep(0.1); print(t, time.time())')));
    const spans = all.map((ex) => ex.logs.stdout.join('').trim().split(' ').map(Number)).sort((a, b) => a[0] - b[0]);
    for (let i = 1; i < spans.length; i++) assert.ok(spans[i][0] >= spans[i - 1][1], JSON.stringify(spans));
  });
});

test('a client that goes away stops its code', async () => {
  const gone = new AbortController();
  const original = globalThis.fetch;
  globalThis.fetch = (url, init) => original(url, { ...init, signal: gone.signal });
  const running = run('import time\nfor i in range(10_000):\n    open("/tmp/ticks", "a").write("x")\n    if i == 0: print("begun", flush=True)\n    time.sleep(0.05)', { onStdout: () => gone.abort() });
  globalThis.fetch = original;
  await assert.rejects(running);
  assert.equal((await run('"free again"', { timeoutMs: 60_000 })).text, 'free again');
  const size = async () => (await sandbox.files.getInfo('/tmp/ticks')).size;
  await until(async () => { const a = await size(); await new Promise((done) => setTimeout(done, 300)); return a === await size(); }, 'the code to stop');
});
