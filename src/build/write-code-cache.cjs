'use strict'

// node --random-seed=1 write-code-cache.cjs BUNDLE FILE [WORD…]: wraps a bundle in its CommonJS function and writes V8's
// code cache of it. A start that wrapped the bundle itself would keep the text in memory twice, 1 MiB each. With words the
// bundle first runs with them, so that the cache holds the functions that such a run calls.
// The cache contains the seed of V8's hashes and the script's name; fixed ones give the same bytes for the same bundle.
// After a run only a few ages of functions may differ.
const { readFileSync, writeFileSync } = require('node:fs')
const { Module } = require('node:module')
const { dirname } = require('node:path')
const { Script } = require('node:vm')

const [bundle = '', file = '', ...words] = process.argv.slice(2)
const source = Module.wrap(readFileSync(bundle, 'latin1'))
writeFileSync(bundle, source, 'latin1')
const script = new Script(source, { filename: 'agent-bundle.cjs' })
if (words.length === 0) writeFileSync(file, script.createCachedData())
else {
  process.argv.splice(1, Infinity, bundle, ...words)
  process.on('exit', () => writeFileSync(file, script.createCachedData()))
  script.runInThisContext().call(exports, exports, require, module, bundle, dirname(bundle))
}
