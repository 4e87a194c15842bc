import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chownSync,
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { errnoOf } from '../../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  PlugRequest,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { findHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { guestSocket } from '../../../../src/host/instance/machine/daemon-steps.ts'
import { factsOf } from '../../../../src/host/migration/memory-file.ts'
import { runServices } from '../../../support/agent/run-services.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { memoryOfClone } from '../../../support/vm/saved/clone-memory.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const TIMEOUT_MS = 60_000
/** Too few for the ring of a console. */
const FREE_BLOCKS = 16

async function clone(host: CountingMachines, name: string) {
  const request = CloneInstanceRequest.fromPartial({ saved: 'one', count: 1, name, withoutAgent: true })
  return await (await host.open()).clone(request, ADMIN, async () => {})
}

async function end(host: CountingMachines): Promise<void> {
  await (await host.open()).deleteSaved('one', ADMIN).catch(() => {})
  await host.end()
  expect(leftovers(host.folder)).toEqual([])
}

describe('two callers of one saved machine', { timeout: TIMEOUT_MS }, () => {
  it('that resume it at once get one machine between them, by one name or by two', async () => {
    const host = new CountingMachines()
    await host.make()
    await host.suspend()
    const both = await Promise.allSettled(['a', 'b'].map((key) => host.resume({}, key)))
    expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
    const winner = both[0]?.status === 'fulfilled' ? 'a' : 'b'
    expect(both.find(({ status }) => status === 'rejected')).toMatchObject({
      reason: {
        code: 'FAILED_PRECONDITION',
        message: expect.stringContaining(`instance ${winner}`),
      },
    })
    const instances = await host.open()
    expect(instances.list(ADMIN).map(({ properties }) => properties?.key)).toEqual([winner])
    await host.counted(winner, 100)
    await host.told(winner)
    await host.suspend({ key: winner, name: 'two' })
    const same = await Promise.all([host.resume({ name: 'two' }, 'c'), host.resume({ name: 'two' }, 'c')])
    expect(new Set(same.map(({ bootId }) => bootId)).size).toBe(1)
    await end(host)
  })

  it('of which one resumes and one clones it never get two machines on one disk', async () => {
    const host = new CountingMachines()
    await host.make()
    for (let turn = 0; turn < 3; turn++) {
      await host.suspend({ name: 'one' })
      const both = await Promise.allSettled([host.resume({}, 'web'), clone(host, 'c')])
      expect(both.filter(({ status }) => status === 'fulfilled').length).toBeLessThan(2)
      for (const each of both)
        if (each.status === 'rejected') expect(each.reason).toMatchObject({ code: 'FAILED_PRECONDITION' })
      const instances = await host.open()
      await instances.remove('c', ADMIN).catch(() => {})
      if (both[0]?.status === 'rejected') await host.resume({}, 'web')
      await host.counted('web', 100)
      await host.told()
    }
    await end(host)
  })
})

describe('a machine that is suspended while something else is done with it', { timeout: TIMEOUT_MS }, () => {
  it('has its snapshot, and the device that was being plugged in', async () => {
    const host = new CountingMachines()
    await host.make()
    const instances = await host.open()
    const data = image(host.disks, 'data', 8)
    const device = { backend: 'data-file', port: 'port', disk: { serial: 'data' } }
    const plug = PlugRequest.fromPartial({ key: 'web', deviceKey: 'data', device, backend: file(data) })
    await Promise.all([
      instances.snapshot(SnapshotRequest.fromPartial({ key: 'web', name: 'before' }), ADMIN),
      instances.plug(plug, ADMIN),
      host.suspend(),
    ])
    const { specification } = await host.resume()
    expect(specification?.devices.data).toMatchObject({ port: 'port' })
    const { snapshots } = await instances.snapshots('web', ADMIN)
    expect(snapshots.map(({ name }) => name)).toEqual(['before'])
    await host.counted('web', 100)
    await host.told()
    await end(host)
  })

  it('goes on rebooting when its guest reboots over and over', async () => {
    const host = new CountingMachines()
    const instances = await host.open()
    await instances.ensure(host.request('web', { board: { kernel: tinyGuest(host.disks, 'reboot') } }), ADMIN)
    await host.change(Change.RUN)
    const bootOf = async () => (await instances.get('web', ADMIN)).bootId
    for (let turn = 0; turn < 4; turn++) {
      const before = await bootOf()
      await expect.poll(bootOf).not.toBe(before)
      await host.suspend()
      expect(await host.resume()).toMatchObject({ state: State.RUNNING })
    }
    await end(host)
  })
})

describe('a full disk', { timeout: TIMEOUT_MS }, () => {
  // Not among the temporary folders: those of dead runs are swept, which a mount would prevent.
  let small: string
  beforeEach(() => {
    small = mkdtempSync('/run/full-')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=24m,mode=755', 'tmpfs', small])
  })
  afterEach(() => {
    execFileSync('umount', ['-l', small])
    rmdirSync(small)
  })

  it('refuses a suspend, a resume and a clone by the file, and leaves nothing of them', async () => {
    const host = new CountingMachines(small, temporaryFolder())
    await host.make()
    const kept = ['saved', 'saved/+own', 'keepers']
    const present = () =>
      readdirSync(small, { recursive: true })
        .filter((name) => !kept.includes(`${name}`.replace(/^keepers.*/, 'keepers')))
        .toSorted()
    const full = async (work: () => Promise<unknown>, text: string) => {
      const before = present()
      const filler = join(small, 'filler')
      const { bavail, bsize } = statfsSync(small)
      writeFileSync(filler, Buffer.alloc((bavail - FREE_BLOCKS) * bsize, 1))
      await expect(work()).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
        message: expect.stringMatching(text),
      })
      rmSync(filler)
      expect(present()).toEqual(before)
    }
    await full(() => host.suspend(), '^memory: .*: ENOSPC$')
    await host.counted('web', 100)
    await host.told()
    await host.suspend()
    await full(() => host.resume(), 'console.ring: ENOSPC$')
    await full(() => clone(host, 'c'), 'console.ring: ENOSPC; no clone was made$')
    await host.resume()
    await host.counted('web', 100)
    await host.told()
    const instances = await host.open()
    await instances.remove('web', ADMIN)
    await host.leave()
    expect(leftovers(small).filter((line) => !line.startsWith(`tmpfs ${small} `))).toEqual([])
  })
})

describe('a guest whose agent answers all but Detach', { timeout: 2 * TIMEOUT_MS }, () => {
  it('goes on, and is told so', async (context) => {
    context.skip(
      process.env[INSTANCES.lives] === undefined,
      'only in `npm run instances`, as it waits for each of its bounds',
    )
    const services = await runServices()
    const host = new CountingMachines()
    await host.make('web', {
      board: { machine: 'pc-i440fx-7.2' },
      devices: { vsock: { backend: 'socket', slot: 6, vsock: {} } },
      backends: { socket: { vsockDaemon: {} } },
    })
    const path = guestSocket(host.folderOf())
    const { uid } = statSync(path)
    rmSync(path)
    const proxy = createServer((caller) => {
      caller.once('data', () => {
        caller.write('OK 1024\n')
        const agent = connect(services.path)
        agent.on('error', () => {}).pipe(caller)
        caller.on('error', () => {}).on('close', () => agent.destroy())
        caller.on('data', (bytes) => void (bytes.includes('Detach') || agent.write(bytes)))
      })
    })
    await once(proxy.listen(path), 'listening')
    chownSync(path, uid, uid)
    await expect(host.suspend()).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: expect.stringMatching(/^detach: /),
    })
    await host.counted('web', 100)
    await host.told()
    proxy.close()
    await services.close()
    await end(host)
  })
})

describe('the memory of a template', { timeout: TIMEOUT_MS }, () => {
  it('can be written by no clone, and is refused once its file is another, whose clones go on', async () => {
    const host = new CountingMachines()
    await host.make()
    const { folder, id } = await host.suspend()
    await clone(host, 'c')
    const [qemu = 0] = host.pidsOf('qemu', 'c')
    const own = memoryOfClone(qemu)
    const [before, inFile] = [await factsOf(own), await factsOf(join(folder, 'memory'))]
    expect(before).toEqual(inFile)
    const fd = openSync(own, 'r+')
    expect(errnoOf(thrown(() => writeSync(fd, 'x', 0)))).toBe('EPERM')
    closeSync(fd)
    const memory = join(folder, 'memory')
    const content = readFileSync(memory)
    const flipped = Buffer.from(content)
    flipped[0x20_0000] = (flipped[0x20_0000] ?? 0) ^ 1
    writeFileSync(memory, flipped)
    await expect(clone(host, 'd')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(`${memory}: damaged: its digest is another one`),
    })
    await host.counted('c', 100)
    const keeper = await findHolder(join(host.folder, 'keepers', id))
    expect(await factsOf(memoryOfClone(keeper?.pid ?? 0))).toEqual(before)
    writeFileSync(memory, content)
    await clone(host, 'd')
    await host.counted('d', 10)
    const same = await findHolder(join(host.folder, 'keepers', id))
    expect(same?.pid).toBe(keeper?.pid)
    for (const each of [keeper, same]) each?.disconnect()
    await end(host)
  })
})

function thrown(work: () => unknown): unknown {
  try {
    work()
  } catch (error) {
    return error
  }
  return undefined
}
