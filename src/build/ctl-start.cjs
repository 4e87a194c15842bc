#!/usr/bin/env node
'use strict'

// Runs agent-ctl from V8's code cache, so that a start parses nothing. When installed, bundle and cache are files beside
// this one. In the single file both follow in comments, which V8 skips quickly: the cache in base64, then the bundle.
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
// nodejs/node issue 54918: a thread of this compiler may wait for the main thread's garbage collection, while the exiting
// main thread waits for all threads. Set after the script, because V8 rejects a cache that was made with other flags.
setFlagsFromString('--no-maglev')
script.runInThisContext().call(exports, exports, require, module, filename, __dirname)

/** @param {string} own */
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

/** @param {string} text V8 itself compares neither system nor architecture. */
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
