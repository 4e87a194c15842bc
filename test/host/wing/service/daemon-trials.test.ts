import { type ChildProcess, execFileSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { buildHolder } from '../../../../src/build/native.ts'
import { projectRoot } from '../../../../src/build/project.ts'
import {
  ChangeStateRequest_Change as Change,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { statusNumber } from '../../../support/host/test-holder.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

/** More than a caller that does not read takes. A serial port sends byte by byte. */
const ENOUGH = 256 * 1024

let folder: string
let state: string
let daemon: ChildProcess
let client: ReturnType<typeof daemonClient>

beforeEach(() => {
  folder = temporaryFolder()
  state = join(folder, 'state')
})

afterEach(async () => {
  for (const { properties } of (await client.instances.listInstances({})).instances)
    await client.instances.remove({ key: properties?.key ?? '' })
  client.close()
  await endChild(daemon)
})

async function start(...enter: readonly string[]): Promise<void> {
  daemon = await startDaemonProcess(state, { enter })
  client = daemonClient(join(state, 'admin.sock'))
}

async function ensure(key: string, does: Parameters<typeof tinyGuest>[1]) {
  const board = { kernel: tinyGuest(folder, does) }
  return await client.instances.ensureInstance(
    ensureRequest(key, { specification: { ...CONSOLE_ONLY, board } }),
  )
}

/** How many bytes the console of the only instance has printed. */
async function printed(): Promise<number> {
  const [id = ''] = readdirSync(join(state, 'instances'))
  return Number((await readRing(join(state, 'instances', id), 0)).end)
}

describe('a guest that prints without an end', () => {
  it('is not held by callers that never read, and its console can be looked at', async () => {
    await start()
    const { holderPid } = await ensure('web', 'flood')
    const silent = Array.from({ length: 5 }, () =>
      client.open('metropolis.proto.vm.OOBManagement/Console', { metadata: { instance: 'web' } }),
    )
    for (const { call } of silent) call.pause()
    const before = statusNumber(daemon.pid ?? 0, 'VmRSS')
    await client.instances.changeState({ key: 'web', change: Change.RUN })
    await expect.poll(printed, { interval: 200, timeout: 50_000 }).toBeGreaterThan(ENOUGH)
    const stdin = new PassThrough()
    const words = ['console', 'web', '--socket', join(state, 'admin.sock')]
    const shown = await microvm(words, {
      stdin,
      onOutput: (text) => text.length > 1000 && stdin.write('\x10\x11'),
    })
    expect(shown).toMatchObject({ status: 0, stdout: expect.stringMatching(/^x+$/) })
    expect(statusNumber(holderPid, 'VmHWM')).toBeLessThanOrEqual(1024)
    expect(statusNumber(daemon.pid ?? 0, 'VmHWM') - before).toBeLessThan(64 * 1024)
  })
})

describe('a daemon whose disk is slow', () => {
  it('serves consoles and reads meanwhile, and ends each change', async () => {
    const library = join(folder, 'slow-sync.so')
    const source = join(import.meta.dirname, '../../../support/host/slow-sync.c')
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', library, source])
    const slow = join(folder, 'slow')
    await start('env', `LD_PRELOAD=${library}`, `SLOW_SYNC=${slow}`)
    await ensure('web', 'flood')
    await client.instances.changeState({ key: 'web', change: Change.RUN })
    const board = { kernel: tinyGuest(folder, 'idle') }
    await client.instances.ensureInstance(
      ensureRequest('other', { specification: { ...CONSOLE_ONLY, board } }),
    )
    const console = client.open('metropolis.proto.vm.OOBManagement/Console', {
      metadata: { instance: 'web' },
    })
    await expect.poll(() => console.answers.length).toBeGreaterThan(0)
    writeFileSync(slow, '')
    const begun = performance.now()
    let took = 0
    const changing = client.instances.changeState({ key: 'other', change: Change.RUN }).finally(() => {
      took = performance.now() - begun
    })
    const waits: number[] = []
    while (took === 0) {
      const [asked, seen] = [performance.now(), console.answers.length]
      const { instances } = await client.instances.listInstances({})
      expect(instances).toHaveLength(2)
      while (console.answers.length === seen) await delay(1)
      waits.push(performance.now() - asked)
    }
    expect((await changing).state).toBe(State.RUNNING)
    expect(took).toBeGreaterThan(2500)
    // The longest wait for the list and for the console's next bytes.
    expect(Math.max(...waits)).toBeLessThan(1500)
    expect(
      (await client.instances.changeState({ key: 'other', change: Change.STOP, graceMs: 10 })).state,
    ).toBe(State.STOPPED)
    rmSync(slow)
    console.call.cancel()
  })
})

describe('a daemon of an ordinary user', () => {
  const USER = 54_323

  it('keeps a machine in a user namespace, and leaves nothing when that is removed', async () => {
    await buildHolder()
    const project = join(folder, 'project')
    mkdirSync(project)
    for (const path of [folder, project]) chmodSync(path, 0o755)
    mkdirSync(state, { mode: 0o700 })
    chownSync(state, USER, USER)
    // The user may not enter the folder of this project, which is bound where it may.
    const bind = `mount --bind ${projectRoot} ${project} && cd ${project} && exec "$@"`
    const user = ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups', '--inh-caps=-all']
    const moved = `exec ${process.execPath.replace(projectRoot, project)}`
    const inside = `shift; ${moved} ${project}/src/microvm/main.ts daemon --state ${state}`
    await start('unshare', '--mount', 'sh', '-ec', bind, 'sh', ...user, 'sh', '-c', inside, 'sh')
    const made = await ensure('web', 'idle')
    const owners = [daemon.pid, made.holderPid, made.qemuPid].map((pid) => statSync(`/proc/${pid}`).uid)
    expect(owners).toEqual([USER, USER, USER])
    expect((await client.instances.changeState({ key: 'web', change: Change.RUN })).state).toBe(State.RUNNING)
    expect((await client.instances.changeState({ key: 'web', change: Change.STOP, graceMs: 10 })).state).toBe(
      State.STOPPED,
    )
    expect((await client.instances.changeState({ key: 'web', change: Change.RUN })).state).toBe(State.RUNNING)
    await client.instances.remove({ key: 'web' })
    expect(leftovers(join(state, 'instances'))).toEqual([])
    expect(readdirSync(join(state, 'instances'))).toEqual([])
  })
})
