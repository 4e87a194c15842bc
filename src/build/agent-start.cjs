'use strict'

// Installed as agent.cjs beside agent-bundle.cjs, which it runs from V8's code cache, so that a start parses nothing. V8
// rejects a cache of another version or source, and then compiles the bundle.
const { readFileSync } = require('node:fs')
const { totalmem } = require('node:os')
const { join } = require('node:path')
const { Script, constants } = require('node:vm')

const SMALL_BYTES = 192 * 1024 * 1024

// A call that hangs on an unresponsive file system blocks a thread of libuv's pool, which has four by default. libuv reads
// this variable at the first use of the pool.
process.env.UV_THREADPOOL_SIZE = '32'

const bundle = join(__dirname, 'agent-bundle.cjs')

/** The file is one CommonJS function in ASCII; as latin1, V8 keeps it with one byte per character. */
const source = readFileSync(bundle, 'latin1')

function codeCache() {
  try {
    return readFileSync(join(__dirname, 'agent-bundle.cache'))
  } catch {
    // Without the cache the start is only slower.
    return undefined
  }
}

const script = new Script(source, {
  filename: bundle,
  cachedData: codeCache(),
  importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
})

// V8's optimizing compilers and their code take up to 20 MB, which a guest of 128 MiB does not have.
if (totalmem() < SMALL_BYTES) {
  const { setFlagsFromString } = require('node:v8')
  for (const flag of ['--no-opt', '--no-maglev']) setFlagsFromString(flag)
}

script.runInThisContext().call(exports, exports, require, module, bundle, __dirname)
