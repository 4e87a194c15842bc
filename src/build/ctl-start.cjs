#!/usr/bin/env node
'use strict'

// The installed agent-ctl has this file as agent-ctl.cjs beside agent-ctl-bundle.cjs. It runs the bundle from V8's code
// cache, so that a start parses nothing. V8 rejects a cache of another version, and then compiles the bundle.
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { Script } = require('node:vm')

const bundle = join(__dirname, 'agent-ctl-bundle.cjs')

function codeCache() {
  try {
    return readFileSync(join(__dirname, 'agent-ctl-bundle.cache'))
  } catch {
    // Without the cache the start is only slower.
    return undefined
  }
}

/** The whole function that a CommonJS module is; ASCII, so that V8 keeps one byte a character. */
const source = readFileSync(bundle, 'latin1')
const script = new Script(source, { filename: bundle, cachedData: codeCache() })
script.runInThisContext().call(exports, exports, require, module, bundle, __dirname)
