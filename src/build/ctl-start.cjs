#!/usr/bin/env node
'use strict'

// The start of agent-ctl. It runs the bundle from V8's code cache, so that a start parses nothing; without the cache it is
// only slower. As installed, both are files beside this one. As one file, both follow at its end, in comments, over which
// V8 passes quickly: the cache in base64, and the bundle with // before each line.
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { setFlagsFromString } = require('node:v8')
const { Script } = require('node:vm')

const OLDEST_NODE = 20
if (Number(process.versions.node.split('.')[0]) < OLDEST_NODE) {
  const text = `Node.js ${process.versions.node} is too old, want ${OLDEST_NODE} or newer`
  process.stderr.write(`agent-ctl: ${text}\n`)
  process.exit(2)
}
addMissing()

const { filename, source, cachedData } = partsOf(readFileSync(__filename, 'latin1'))
const script = new Script(source, { filename, cachedData })
// A thread of this compiler may wait for the main thread's collection of garbage, and the main thread at its exit for all
// threads: nodejs/node issue 54918. After the script, because V8 refuses a cache that other flags have made.
setFlagsFromString('--no-maglev')
script.runInThisContext().call(exports, exports, require, module, filename, __dirname)

/**
 * The source is the whole function that a CommonJS module is; ASCII, so that V8 keeps one byte a character.
 *
 * @param {string} own
 */
function partsOf(own) {
  const bundleMark = '\n// bundle\n//'
  const bundleAt = own.indexOf(bundleMark)
  if (bundleAt === -1) return partsBeside()
  return {
    filename: __filename,
    source: own.slice(bundleAt + bundleMark.length, -1).replaceAll('\n//', '\n'),
    cachedData: cacheWithin(own.slice(0, bundleAt)),
  }
}

/**
 * The cache if this Node's V8 made it. V8 itself would compare neither system nor architecture.
 *
 * @param {string} text
 */
function cacheWithin(text) {
  const mark = `\n// cache of ${process.platform} ${process.arch} ${process.versions.v8}\n//`
  const at = text.lastIndexOf(mark)
  return at === -1 ? undefined : Buffer.from(text.slice(at + mark.length), 'base64')
}

function partsBeside() {
  const bundle = join(__dirname, 'agent-ctl-bundle.cjs')
  return { filename: bundle, source: readFileSync(bundle, 'latin1'), cachedData: cacheBeside() }
}

function cacheBeside() {
  try {
    return readFileSync(join(__dirname, 'agent-ctl-bundle.cache'))
  } catch {
    return undefined
  }
}

/** Adds what the bundle uses and Node 20 lacks. */
function addMissing() {
  if (!Promise.withResolvers) {
    Promise.withResolvers = () => {
      /** @type {any} */
      const parts = {}
      parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
      return parts
    }
  }
  if (!Map.groupBy) {
    Map.groupBy = (items, keyOf) => {
      const groups = new Map()
      let index = 0
      for (const item of items) {
        const key = keyOf(item, index++)
        groups.set(key, [...(groups.get(key) || []), item])
      }
      return groups
    }
  }
}
