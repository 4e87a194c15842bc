import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { nodeFlags } from '../../../src/build/node-flags.mjs'
import { pinnedNode, projectRoot } from '../../../src/build/project.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('microvm daemon', () => {
  let child: ChildProcess | undefined
  afterEach(() => {
    child?.kill('SIGKILL')
  })

  /** Resolves with the first line of its log. */
  async function start(...words: readonly string[]): Promise<Readonly<Record<string, string>>> {
    const main = join(projectRoot, 'src/microvm/main.ts')
    child = spawn(pinnedNode(), [main, 'daemon', '--mock', ...words], {
      stdio: ['ignore', 'inherit', 'pipe'],
    })
    let text = ''
    for await (const chunk of child.stderr ?? []) {
      text += chunk
      const [line, rest] = text.split('\n')
      if (rest !== undefined) return JSON.parse(line ?? '')
    }
    throw new Error(`ended: ${text}`)
  }

  it('serves at the socket of its state folder until SIGTERM, and then leaves in order', async () => {
    const state = join(temporaryFolder(), 'state')
    const socket = join(state, 'admin.sock')
    expect(await start('--state', state)).toMatchObject({ msg: 'serving', socket, source: 'microvm' })
    expect(await microvm(['ps', '--json', '--socket', socket])).toEqual({ status: 0, stdout: '', stderr: '' })
    const ended = once(child as ChildProcess, 'exit')
    child?.kill('SIGTERM')
    expect(await ended).toEqual([0, null])
    expect(existsSync(socket)).toBe(false)
    expect((await microvm(['ps', '--socket', socket])).status).toBe(125)
  })

  it('serves the administrator elsewhere on request, and each tenant of its configuration', async () => {
    const folder = temporaryFolder()
    const [socket, config] = [join(folder, 'admin.sock'), join(folder, 'daemon.toml')]
    const kernel = join(folder, 'kernel')
    writeFileSync(kernel, '')
    writeFileSync(config, `[tenants.shop]\nuid = ${process.getuid?.()}\nfolders = ["${folder}"]\n`)
    await start('--state', join(folder, 'state'), '--socket', socket, '--config', config)
    const description = JSON.stringify({
      properties: { key: 'web' },
      specification: {
        board: { machine: 'pc-q35-7.2', memory_mib: 128, cpus: 1, kernel },
        devices: { console: { backend: 'output', serial: {} } },
        backends: { output: { console: {} } },
      },
    })
    const tenant = join(folder, 'state/tenants/shop.sock')
    await microvm(['ensure', '-', '--socket', tenant], { stdin: description })
    const { stdout } = await microvm(['inspect', '--json', 'web', '--socket', socket])
    expect(JSON.parse(stdout).properties).toMatchObject({ key: 'web', tenant: 'shop' })
  })

  it.each([
    ['[tenants', 2, /daemon\.toml: /],
    ['[tenants.Shop]\nuid = 1\n', 2, /daemon\.toml: tenants\.Shop: invalid name/],
  ])('refuses the configuration %j in one line', async (text, status, line) => {
    const config = join(temporaryFolder(), 'daemon.toml')
    writeFileSync(config, text)
    const run = await microvm([
      'daemon',
      '--mock',
      '--state',
      join(temporaryFolder(), 'state'),
      '--config',
      config,
    ])
    expect([run.status, run.stdout, run.stderr.split('\n').length]).toEqual([status, '', 2])
    expect(run.stderr).toMatch(line)
  })

  it('optimizes its code once it serves, and not before', async () => {
    const state = join(temporaryFolder(), 'state')
    const main = join(projectRoot, 'src/microvm/main.ts')
    const words = [...nodeFlags('daemon'), '--trace-opt', main, 'daemon', '--mock', '--state', state]
    const traced = spawn(pinnedNode(), words, { stdio: ['ignore', 'pipe', 'pipe'] })
    child = traced
    let trace = ''
    traced.stdout.on('data', (chunk) => {
      trace += chunk
    })
    await once(traced.stderr, 'data')
    expect(trace).toBe('')
    const client = daemonClient(join(state, 'admin.sock'))
    while (!trace.includes('completed optimizing')) await client.instances.listInstances({})
    client.close()
  })

  it('says in one line why it cannot start', async () => {
    expect(await microvm(['daemon', '--mock', '--state', '/etc/passwd/state'])).toEqual({
      status: 125,
      stdout: '',
      stderr: expect.stringMatching(/^microvm: state folder \/etc\/passwd\/state: .*--state DIR.*\n$/),
    })
  })
})
