import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, expect, it } from 'vitest'
import { writeDaemonUnit } from '../../src/build/daemon-unit.ts'
import { writeMicrovm } from '../../src/build/microvm.ts'
import { nodeFlags } from '../../src/build/node-flags.mjs'
import { projectRoot } from '../../src/build/project.ts'
import { endChild } from '../support/processes.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const folder = temporaryFolder()
const dist = join(folder, "it's dist")
const microvm = await writeMicrovm(join(dist, 'microvm'))
const unit = readFileSync(writeDaemonUnit(dist, microvm), 'utf8')

/** Writes what a program loads, and the stack of a call of `listen`, to files. */
const SPY = `
import { appendFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { Server } from 'node:net'
registerHooks({ load: (url, context, next) => (appendFileSync('${folder}/loaded', url + '\\n'), next(url, context)) })
const { listen } = Server.prototype
Server.prototype.listen = function (...words) {
  appendFileSync('${folder}/stack', new Error().stack)
  return listen.apply(this, words)
}`

describe('microvm as npm run dist writes it', () => {
  const run = (...words: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(microvm, words, { encoding: 'utf8' })
    return { status, stdout, stderr }
  }

  it('serves by the command of the unit, from its own folder alone', async () => {
    const [, program = '', ...words] = /^ExecStart="(.*)" (daemon) (--state) \S+$/m.exec(unit) ?? []
    const state = join(folder, 'state')
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(SPY)}`
    const daemon = spawn(program, [...words, state, '--mock'], {
      env: { ...process.env, NODE_OPTIONS },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    try {
      const [line] = await once(createInterface(daemon.stderr), 'line')
      expect(JSON.parse(line)).toMatchObject({ msg: 'serving' })
      expect(readFileSync(`/proc/${daemon.pid}/cmdline`, 'utf8').split('\0')).toEqual(
        expect.arrayContaining([...nodeFlags('daemon')]),
      )
      const listed = run('ps', '--json', '--socket', join(state, 'admin.sock'))
      expect(listed).toEqual({ status: 0, stdout: '', stderr: '' })
    } finally {
      await endChild(daemon, 'SIGTERM')
    }
    const loaded = readFileSync(join(folder, 'loaded'), 'utf8').trim().split('\n')
    const own = loaded.map((url) => decodeURIComponent(url)).filter((url) => !url.startsWith('node:'))
    expect(own.length).toBeGreaterThan(0)
    expect(own.filter((url) => !url.startsWith(`file://${dist}/`))).toEqual([])
    // Functions keep their names.
    expect(readFileSync(join(folder, 'stack'), 'utf8')).toMatch(
      / at async compose .*\n.* at async startDaemon /,
    )
  })

  it('has the places of its sources, but builds bundles without them', () => {
    const modules = globSync(join(dist, 'microvm/microvm-*/*.mjs'))
    const text = modules.map((path) => readFileSync(path, 'utf8')).join('')
    const place = `"${join(projectRoot, 'src/build/agent.ts')}"`
    const ofBundles = '{"import.meta.dirname":"__dirname","import.meta.filename":"__filename"}'
    expect([place, ofBundles].filter((each) => !text.includes(each))).toEqual([])
  })

  it.each(['controller', 'hypervisor', 'daemon', 'ps'])('shows the help of %s', (command) => {
    const { status, stdout } = run(command, '--help')
    expect([status, stdout]).toEqual([0, expect.stringContaining(`./microvm ${command}`)])
  })

  it('checks the host', () => {
    const { stdout } = run('doctor', '--json', '--socket', '/nowhere/admin.sock')
    expect(JSON.parse(stdout.split('\n')[0] ?? '')).toMatchObject({ name: 'package qemu-system-x86' })
  })
})
