'use strict'

// node --random-seed=1 write-code-cache.cjs BUNDLE FILE: V8's code cache of a bundle as agent-start.cjs compiles it.
// The seed of V8's hashes and the script's name go into the cache: fixed ones give the same bytes for the same bundle.
const { readFileSync, writeFileSync } = require('node:fs')
const { Module } = require('node:module')
const { Script } = require('node:vm')

const [bundle = '', file = ''] = process.argv.slice(2)
const script = new Script(Module.wrap(readFileSync(bundle, 'latin1')), { filename: 'agent-bundle.cjs' })
writeFileSync(file, script.createCachedData())
