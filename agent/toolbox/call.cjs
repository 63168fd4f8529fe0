(async (payload) => {
  const call = JSON.parse(Buffer.from(payload, 'base64').toString('utf8'));
  const file = `tool_${call.name}.js`;
  const plain = (key, value) => {
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`returned ${value}, which is not JSON`);
    return value;
  };
  let answer;
  try {
    const source = `(function (require, module, exports) {${call.code}\n;return typeof ${call.function} === 'function' ? ${call.function} : module.exports[${JSON.stringify(call.function)}]\n})`;
    const module = { exports: {} };
    const found = require('vm').runInThisContext(source, { filename: file })(require, module, module.exports);
    if (typeof found !== 'function') throw new ReferenceError(`the code defines no function ${call.function}`);
    const value = await found(call.args);
    answer = JSON.stringify({ value: value === undefined ? null : value }, plain);
    if (answer === '{}') throw new TypeError(`returned a ${typeof value}, which is not JSON`);
  } catch (e) {
    const error = e instanceof Error ? e : new Error(String(e));
    const stack = String(error.stack);
    const at = new RegExp(`${file.replace('.', '\\.')}:(\\d+)`).exec(stack);
    answer = JSON.stringify({
      error: { type: String(error.name), message: String(error.message).slice(0, 2000), line: at ? Math.min(Number(at[1]), call.code.split('\n').length) : 0, traceback: stack.slice(0, 8000) },
    });
  }
  process.stdout.write(`\n${call.marker}${answer}\n`);
})('PAYLOAD');
