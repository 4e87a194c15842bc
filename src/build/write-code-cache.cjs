'use strict'

// node --random-seed=1 write-code-cache.cjs BUNDLE FILE [WORD…]: writes V8's code cache of a bundle that is one CommonJS
// function. With words the bundle first runs with them, so that the cache holds the functions that such a run calls.
// Without words the functions of an existing cache are kept, and numbered anew: a run numbers them as it calls them, in
// an order that varies. Then the same bundle gives the same bytes, for the seed of V8's hashes and the name are fixed.
const { existsSync, readFileSync, writeFileSync } = require('node:fs')
const { dirname } = require('node:path')
const { setFlagsFromString } = require('node:v8')
const { Script } = require('node:vm')

/** They forget, mark or optimize functions at times that vary. V8 rejects a cache that was made under other flags than its own. */
const TIMED = ['flush-bytecode', 'sparkplug', 'maglev', 'turbofan']

/** Timers of so long fire in a slow run only. Here they never do, so that each run calls the same functions. */
const NEVER_FIRES_MS = 500

const [bundle = '', file = '', ...words] = process.argv.slice(2)
const cachedData = existsSync(file) ? readFileSync(file) : undefined
const script = new Script(readFileSync(bundle, 'latin1'), { filename: 'agent-bundle.cjs', cachedData })
for (const flag of TIMED) setFlagsFromString(`--no-${flag}`)
process.on('exit', () => {
  for (const flag of TIMED) setFlagsFromString(`--${flag}`)
  writeFileSync(file, script.createCachedData())
})
if (words.length > 0) {
  globalThis.setTimeout = new Proxy(setTimeout, {
    apply: (start, _, [callback, ms, ...given]) =>
      start(callback, ms < NEVER_FIRES_MS ? ms : 2 ** 31 - 1, ...given),
  })
  process.argv.splice(1, Infinity, bundle, ...words)
  script.runInThisContext().call(exports, exports, require, module, bundle, dirname(bundle))
}
