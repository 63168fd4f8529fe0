'use strict';
// A cell is rewritten before it runs, by inserting and replacing text within its
// lines and never adding one: let, const, class and import at the top level become
// assignments to properties of globalThis (so that they last, and may be declared
// again), and a cell with await or import at its top level becomes an async
// function. Edits.column maps positions in stack traces back.

// Node's own parser, which --expose-internals gives: it knows just the language
// that this Node runs.
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const walk = require('internal/deps/acorn/acorn-walk/dist/walk');

// The code may replace any global; the kernel keeps the ones it needs.
const { Set, Math } = globalThis;

const ACORN = {
  ecmaVersion: 'latest',
  sourceType: 'script',
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowHashBang: true,
  locations: true,
};

function names(pattern, into) {
  switch (pattern.type) {
    case 'Identifier': into.add(pattern.name); break;
    case 'ObjectPattern': for (const p of pattern.properties) names(p.value || p.argument, into); break;
    case 'ArrayPattern': for (const p of pattern.elements) if (p) names(p, into); break;
    case 'AssignmentPattern': names(pattern.left, into); break;
    case 'RestElement': names(pattern.argument, into); break;
  }
}

// A text with edits, and where in the original each of its characters stood.
class Edits {
  constructor(src) {
    this.src = src;
    this.list = [];
  }
  // Replaces [from, to) of the original; both may be equal.
  put(from, to, text) {
    this.list.push({ from, to, text, order: this.list.length });
  }
  apply() {
    this.list.sort((a, b) => a.from - b.from || a.to - b.to || a.order - b.order);
    let out = '';
    let at = 0;
    for (const e of this.list) {
      out += this.src.slice(at, e.from);
      e.start = out.length;
      // A replaced import may span lines; they stay.
      out += e.text + '\n'.repeat(e.to > e.from ? this.src.slice(e.from, e.to).split('\n').length - 1 : 0);
      e.end = out.length;
      at = e.to;
    }
    this.out = out + this.src.slice(at);
    return this.out;
  }
  // The original column of a column of the result; both count from 1.
  column(line, col) {
    let start = 0;
    for (let l = 1; l < line; l++) {
      start = this.out.indexOf('\n', start) + 1;
      if (start === 0) return col;
    }
    let shift = 0;
    for (const e of this.list) {
      if (e.start < start) continue;
      if (e.start >= start + col - 1) break;
      shift += e.end - e.start - (e.to - e.from);
    }
    return Math.max(1, col - shift);
  }
}

// Turns a cell into a script. Throws acorn's SyntaxError.
function rewrite(src) {
  let ast;
  let object = false;
  if (/^\s*\{/.test(src) && !/;\s*$/.test(src)) {
    // `{a: 1}` alone means the object, as in Node's own prompt.
    try {
      acorn.parseExpressionAt('(' + src + '\n)', 0, ACORN);
      ast = acorn.parse('(' + src + '\n)', ACORN);
      object = ast.body.length === 1;
    } catch (e) {
      object = false;
    }
  }
  const edits = new Edits(src);
  if (object) {
    const async = hasAwait(ast);
    edits.put(0, 0, async ? '$cubby.run(async()=>{return(' : '(');
    edits.put(src.length, src.length, async ? '\n)})' : '\n)');
    return { edits, code: edits.apply(), declared: new Set(), async, shows: true };
  }
  ast = acorn.parse(src, ACORN);
  const async = hasAwait(ast);
  const declared = new Set();
  const functions = new Set();
  const body = ast.body.slice();
  while (body.length && body[body.length - 1].type === 'EmptyStatement') body.pop();
  const last = body[body.length - 1];
  const text = (node) => src.slice(node.start, node.end);

  // Declarators become assignments: `const {a} = o` is `;   ({a} = o)`.
  const assign = (node, top) => {
    const word = node.kind.length;
    node.declarations.forEach((d, i) => {
      names(d.id, declared);
      const isPattern = d.id.type !== 'Identifier';
      if (i > 0 && isPattern) edits.put(d.start, d.start, '(');
      if (isPattern && d.init) edits.put(d.end, d.end, ')');
      else if (!d.init && top && node.kind !== 'var') edits.put(d.end, d.end, '=void 0');
    });
    const first = node.declarations[0];
    edits.put(node.start, node.start + word, (top ? ';' : ' ').padEnd(word - 1) + (first.id.type !== 'Identifier' && first.init ? '(' : ' '));
    if (top && src[node.end - 1] !== ';') edits.put(node.end, node.end, ';');
  };
  const bring = (node) => {
    const attrs = (node.attributes || []).map(text).join(',');
    return `await $cubby.import(${node.source.raw}${attrs && `,{with:{${attrs}}}`})`;
  };
  const declaration = (node) => {
    switch (node.type) {
      case 'VariableDeclaration':
        if (node.kind !== 'var' || async) assign(node, true);
        break;
      case 'ClassDeclaration':
        declared.add(node.id.name);
        edits.put(node.start, node.start, `;${node.id.name}=`);
        edits.put(node.end, node.end, ';');
        break;
      case 'FunctionDeclaration':
        if (async) functions.add(node.id.name);
        break;
    }
  };
  for (const node of ast.body) {
    declaration(node);
    switch (node.type) {
      case 'ImportDeclaration': {
        const all = [];
        let space = '';
        for (const s of node.specifiers) {
          declared.add(s.local.name);
          if (s.type === 'ImportNamespaceSpecifier') space = s.local.name;
          else if (s.type === 'ImportDefaultSpecifier') all.push(`default:${s.local.name}`);
          else all.push(`${text(s.imported)}:${s.local.name}`);
        }
        let code = bring(node);
        if (space) code = `${space}=${code}`;
        if (all.length) code = `({${all.join(',')}}=${code})`;
        edits.put(node.start, node.end, `;${code};`);
        break;
      }
      case 'ExportNamedDeclaration':
        if (node.declaration) {
          edits.put(node.start, node.declaration.start, '');
          declaration(node.declaration);
        } else edits.put(node.start, node.end, node.source ? `;${bring(node)};` : ';');
        break;
      case 'ExportAllDeclaration':
        edits.put(node.start, node.end, `;${bring(node)};`);
        break;
      case 'ExportDefaultDeclaration': {
        const d = node.declaration;
        const named = d.id && /Declaration$/.test(d.type);
        edits.put(node.start, d.start, named ? '' : ';(');
        if (named) declaration(d);
        else edits.put(d.end, d.end, ')');
        break;
      }
    }
  }
  // Below the top level: var in blocks (inside an async function it would be local),
  // import() and import.meta.
  const top = new Set(ast.body.map((n) => n.declaration || n));
  walk.fullAncestor(ast, (node, ancestors) => {
    if (node.type === 'ImportExpression') edits.put(node.start, node.start + 6, '$cubby.import');
    else if (node.type === 'MetaProperty' && node.meta.name === 'import') edits.put(node.start, node.end, '$cubby.meta');
    else if (async && node.type === 'VariableDeclaration' && node.kind === 'var' && !top.has(node) && !ancestors.some(isFunction)) {
      const parent = ancestors[ancestors.length - 2];
      const inFor = /^For/.test(parent.type) && parent.body !== node;
      if (inFor && parent.type !== 'ForStatement') {
        names(node.declarations[0].id, declared);
        edits.put(node.start, node.start + 3, '   ');
      } else assign(node, !inFor);
    }
  });
  const shows = Boolean(last) && last.type === 'ExpressionStatement';
  if (async) {
    const lift = [...functions].map((f) => `globalThis.${f}=${f};`).join('');
    const start = src.startsWith('#!') ? src.length - src.replace(/^#!.*/, '').length : 0;
    edits.list.unshift({ from: 0, to: start, text: `$cubby.run(async()=>{${lift}`, order: -1 });
    if (shows) {
      edits.put(last.start, last.start, ';return(');
      edits.put(last.expression.end, last.expression.end, ')');
      // `(1)` ends before its parenthesis does.
      const tail = src.slice(last.expression.end, last.end);
      if (tail.includes(')')) {
        edits.list.pop();
        const end = last.end - (tail.endsWith(';') ? 1 : 0);
        edits.put(end, end, ')');
      }
    }
    edits.put(src.length, src.length, '\n})');
  }
  return { edits, code: edits.apply(), declared, async, shows };
}

function isFunction(node) {
  return /Function/.test(node.type) || node.type === 'StaticBlock' || node.type === 'PropertyDefinition';
}

function hasAwait(ast) {
  let found = ast.body.some((n) => /^(Import|ExportAll)/.test(n.type) || (n.type === 'ExportNamedDeclaration' && n.source));
  walk.fullAncestor(ast, (node, ancestors) => {
    if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) {
      if (!ancestors.some(isFunction)) found = true;
    }
  });
  return found;
}

module.exports = { rewrite };
