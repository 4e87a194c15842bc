'use strict'

// Copied as agent.cjs beside agent-bundle.cjs: runs the bundle from V8's code cache, which spares each start the
// parsing. V8 itself refuses a cache of another version or another source; then the bundle is compiled as usual.
const { readFileSync } = require('node:fs')
const { Module } = require('node:module')
const { join } = require('node:path')
const { Script, constants } = require('node:vm')

// Calls that hang on a dead file system each hold a thread of libuv's pool, which has four unless it is told otherwise
// before its first use.
process.env.UV_THREADPOOL_SIZE = '32'

const bundle = join(__dirname, 'agent-bundle.cjs')

/** The whole function around the bundle that a CommonJS module is; ASCII, so that V8 keeps one byte a character. */
const source = Module.wrap(readFileSync(bundle, 'latin1'))

function codeCache() {
  try {
    return readFileSync(join(__dirname, 'agent-bundle.cache'))
  } catch {
    // Only slower without.
    return undefined
  }
}

const script = new Script(source, {
  filename: bundle,
  cachedData: codeCache(),
  importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
})
script.runInThisContext().call(exports, exports, require, module, bundle, __dirname)
