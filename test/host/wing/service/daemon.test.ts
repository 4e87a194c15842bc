import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdirSync, readdirSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../../src/build/project.ts'
import {
  ChangeStateRequest_Change as Change,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { endChild, processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'

interface Line {
  readonly msg: string
}

describe('a daemon of real machines', () => {
  let folder: string
  let daemons: ChildProcess[]
  let lines: Line[]

  beforeEach(() => {
    folder = temporaryFolder()
    daemons = []
    lines = []
  })

  afterEach(async () => {
    for (const daemon of daemons) await endChild(daemon, 'SIGKILL')
    const { daemon, client } = await start()
    for (const { properties } of (await client.instances.listInstances({})).instances)
      await client.instances.remove({ key: properties?.key ?? '' })
    client.close()
    await endChild(daemon)
  })

  /** Rejects with the last line of a daemon that does not start. */
  async function start() {
    const main = join(projectRoot, 'src/microvm/main.ts')
    const env = { ...process.env, MICROVM_ACCEL: 'tcg' }
    const daemon = spawn(process.execPath, [main, 'daemon', '--state', join(folder, 'state')], {
      ...{ env, stdio: ['ignore', 'ignore', 'pipe'] },
    })
    daemons.push(daemon)
    let last = ''
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: daemon.stderr }).on('line', (line) => {
        last = line
        if (!line.startsWith('{')) return
        const parsed: Line = JSON.parse(line)
        lines.push(parsed)
        if (parsed.msg === 'serving') resolve()
      })
      daemon.once('close', () => reject(new Error(last)))
    })
    return { daemon, client: daemonClient(join(folder, 'state/admin.sock')) }
  }

  const key = (name: string) => ({ metadata: { 'idempotency-key': name } })

  it('kills and removes machines on a full disk, and remembers that over its own death', async () => {
    const state = join(folder, 'state')
    mkdirSync(state)
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=700', 'tmpfs', state])
    try {
      const first = await start()
      const { request } = lifePlan(join(folder, 'disks'))
      const named = (name: string) => ({
        ...request,
        properties: { key: name, tenant: '', labels: {} },
        specification: { ...request.specification, devices: {}, backends: {} },
      })
      for (const name of ['a', 'b', 'c']) await first.client.instances.ensureInstance(named(name))
      const filler = join(state, 'filler')
      const fill = () => appendFileSync(filler, Buffer.alloc(spaceOf(state)))
      fill()
      await expect(first.client.instances.ensureInstance(named('d'), key('d'))).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
      })
      const killed = { key: 'a', change: Change.KILL }
      expect((await first.client.instances.changeState(killed, key('kill'))).state).toBe(State.STOPPED)
      fill()
      for (const name of ['a', 'b']) {
        await first.client.instances.remove({ key: name }, key(name))
        fill()
      }
      first.client.close()
      await endChild(first.daemon, 'SIGKILL')

      const { client, daemon } = await start()
      const { instances } = await client.instances.listInstances({})
      expect(instances.map(({ properties }) => properties?.key)).toEqual(['c'])
      expect((await client.instances.changeState(killed, key('kill'))).state).toBe(State.STOPPED)
      await client.instances.remove({ key: 'b' }, key('b'))
      await expect(client.instances.remove({ key: 'b' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
      await client.instances.remove({ key: 'c' }, key('c'))
      client.close()
      await endChild(daemon)
      expect(readdirSync(join(state, 'instances'))).toEqual([])
    } finally {
      for (const daemon of daemons.splice(0)) await endChild(daemon, 'SIGKILL')
      execFileSync('umount', ['-l', state])
    }
  })

  it('keeps machines and answers over its own death', async () => {
    const { request } = lifePlan(join(folder, 'disks'))
    const first = await start()
    const made = await first.client.instances.ensureInstance(request, key('ensure'))
    const run = { key: 'web', change: Change.RUN }
    const running = await first.client.instances.changeState(run, key('run'))
    expect(running).toMatchObject({ state: State.RUNNING, qemuPid: made.qemuPid })
    const stream = { key: 'web', container: 'c', stream: 'stdout' }
    const { port } = await first.client.instances.allocatePort(stream, key('port'))
    await first.client.instances.changeState({ key: 'web', change: Change.PAUSE })
    await expect(start()).rejects.toThrow(
      `${folder}/state: used by the daemon with pid ${first.daemon.pid}, want that stopped first`,
    )
    first.daemon.kill('SIGKILL')
    await once(first.daemon, 'exit')
    first.client.close()

    const { client, daemon } = await start()
    const { instances } = client
    expect(await instances.getInstance({ key: 'web' })).toMatchObject({
      state: State.PAUSED,
      qemuPid: made.qemuPid,
      bootId: made.bootId,
    })
    expect(await instances.changeState(run, key('run'))).toEqual(running)
    expect((await instances.getInstance({ key: 'web' })).state).toBe(State.PAUSED)
    expect((await instances.allocatePort(stream, key('port'))).port).toBe(port)
    await expect(instances.changeState({ ...run, change: Change.KILL }, key('run'))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'instance', key: 'web', kind: 'adopted' }))
    client.close()
    await endChild(daemon)
    expect(processState(made.qemuPid)).toBeDefined()
  })
})

function spaceOf(folder: string): number {
  const { bfree, bsize } = statfsSync(folder)
  return bfree * bsize
}
