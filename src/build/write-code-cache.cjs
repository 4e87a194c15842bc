'use strict'

// node --random-seed=1 write-code-cache.cjs BUNDLE FILE [WORD…]: turns a bundle into the whole function around it that a
// CommonJS module is, and writes V8's code cache of that, as agent-start.cjs compiles it. A start that joined the function
// around the bundle would keep the text in memory twice, 1 MiB each.
// The seed of V8's hashes and the script's name go into the cache: fixed ones give the same bytes for the same bundle.
// With words the bundle runs with them first, to its end, so that the cache has the functions that such a run calls. Their
// ages go into the cache, too, and a few may differ.
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
