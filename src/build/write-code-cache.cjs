'use strict'

// node --random-seed=1 write-code-cache.cjs BUNDLE FILE: turns a bundle into the whole function around it that a CommonJS
// module is, and writes V8's code cache of that, as agent-start.cjs compiles it. A start that joined the function around the
// bundle would keep the text in memory twice, 1 MiB each.
// The seed of V8's hashes and the script's name go into the cache: fixed ones give the same bytes for the same bundle.
const { readFileSync, writeFileSync } = require('node:fs')
const { Module } = require('node:module')
const { Script } = require('node:vm')

const [bundle = '', file = ''] = process.argv.slice(2)
const source = Module.wrap(readFileSync(bundle, 'latin1'))
writeFileSync(bundle, source, 'latin1')
const script = new Script(source, { filename: 'agent-bundle.cjs' })
writeFileSync(file, script.createCachedData())
