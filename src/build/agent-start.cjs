'use strict'

// Installed as agent.cjs beside agent-bundle.cjs, which it runs from V8's code cache, so that a start parses nothing. V8
// rejects a cache of another version or source, and then compiles the bundle.
const { totalmem } = require('node:os')
const { join } = require('node:path')
const { Script, constants } = require('node:vm')

const addon = require(join(__dirname, 'addon.node'))

const SMALL_BYTES = 192 * 1024 * 1024

// A call that hangs on an unresponsive file system blocks a thread of libuv's pool, which has four by default. After an
// agent with 32 the next one answers 3 ms later, for the kernel ends them one by one. libuv reads this variable at the
// first use of the pool.
process.env.UV_THREADPOOL_SIZE = '16'

const bundle = join(__dirname, 'agent-bundle.cjs')

/**
 * The file is one CommonJS function in ASCII. Both files are mapped: a start that reads them takes a millisecond longer, and
 * keeps a copy of the text.
 */
const source = addon.mappedText(bundle)
if (typeof source !== 'string') throw new Error(`${bundle}: not readable, errno ${-source}`)
const codeCache = addon.mappedBytes(join(__dirname, 'agent-bundle.cache'))

const script = new Script(source, {
  filename: bundle,
  // Without the cache the start is only slower.
  cachedData: typeof codeCache === 'number' ? undefined : codeCache,
  importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
})

// V8's optimizing compilers and their code take up to 20 MB, which a guest of 128 MiB does not have.
if (totalmem() < SMALL_BYTES) {
  const { setFlagsFromString } = require('node:v8')
  for (const flag of ['--no-opt', '--no-maglev']) setFlagsFromString(flag)
}

script.runInThisContext().call(exports, exports, require, module, bundle, __dirname)
