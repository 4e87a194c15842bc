import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  Device,
  EnsureInstanceRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { INSTANCE_LIMITS } from '../../../../src/host/instance/limits.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { MORTAL_DAEMON } from '../../../support/wing/lives/run-life.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'

const opened: Instances[] = []

afterEach(async () => {
  for (const instances of opened.splice(0)) {
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
  }
})

async function open(does: Parameters<typeof lifePlan>[1] = 'idle', limits = INSTANCE_LIMITS) {
  const folder = temporaryFolder()
  const instances = await openReal(folder, memoryRegistry(), { limits })
  opened.push(instances)
  return { folder, instances, plan: lifePlan(join(folder, 'disks'), does) }
}

const change = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 100 }, ADMIN)

describe('an instance with a real QEMU', () => {
  it('lives: paused, running, paused, reset, stopped, running, removed', async () => {
    const { instances, plan, folder } = await open()
    const made = await instances.ensure(plan.request, ADMIN)
    expect(made).toMatchObject({
      state: State.PAUSED,
      backends: { 'root-file': { locks: ['write'], sizeBytes: 16n * 2n ** 20n } },
    })
    expect(made.qemuPid).toBeGreaterThan(0)
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    expect((await change(instances, Change.PAUSE)).state).toBe(State.PAUSED)
    expect((await change(instances, Change.RESET)).bootId).not.toBe(made.bootId)
    expect((await change(instances, Change.STOP)).state).toBe(State.STOPPED)
    const [name = ''] = readdirSync(join(folder, 'instances'))
    expect(readdirSync(join(folder, 'instances', name)).sort()).toEqual([
      'console.ring',
      'exits',
      'qemu.log',
      'run',
      'specification.binpb',
    ])
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    await instances.remove('web', ADMIN)
    expect(readdirSync(join(folder, 'instances'))).toEqual([])
  })
})

describe('a guest', () => {
  it.each([
    ['reboot', 'the guest rebooted more than 3 times in 60 s'],
    ['powerOff', 'the guest has shut down'],
  ] as const)('that does %s is stopped with the reason', async (does, reason) => {
    const { instances, plan } = await open(does)
    await instances.ensure(plan.request, ADMIN)
    await change(instances, Change.RUN)
    expect(await stopped(instances)).toBe(reason)
  })
})

describe('a process that fails', () => {
  it.each([
    ['QEMU is killed', 'qemuPid', 'SIGKILL', 'QEMU was ended by signal 9', [0, 0]],
    ['QEMU does not answer', 'qemuPid', 'SIGSTOP', 'QEMU did not answer `', [0, 1]],
    ['the holder is killed', 'holderPid', 'SIGKILL', 'the holder died', [1, 0]],
  ] as const)('stops the instance when %s, and counts it', async (_, which, signal, reason, counts) => {
    const { instances, plan, folder } = await open('idle', { ...INSTANCE_LIMITS, commandMs: 2000 })
    await instances.ensure(plan.request, ADMIN)
    const made = await change(instances, Change.RUN)
    process.kill(made[which], signal)
    await change(instances, Change.PAUSE).catch(() => {})
    expect(await stopped(instances)).toContain(reason)
    const samples = ['microvm_instance_changes_total{kind="holder died"}', 'microvm_qmp_errors_total']
    expect(samples.map((sample) => countOf(instances, sample))).toEqual(counts)
    await instances.remove('web', ADMIN)
    expect(leftovers(folder)).toEqual([])
  })

  it.each(['qemuPid', 'holderPid'] as const)(
    'can be killed and removed while %s is stopped',
    async (which) => {
      const { instances, plan, folder } = await open()
      const made = await instances.ensure(plan.request, ADMIN)
      process.kill(made[which], 'SIGSTOP')
      await instances.remove('web', ADMIN)
      expect(leftovers(folder)).toEqual([])
    },
  )

  it('is told in its own words when QEMU does not start', async () => {
    const { instances, plan, folder } = await open()
    const { specification } = plan.request
    const kernel = join(folder, 'kernel')
    writeFileSync(kernel, '\x7fELF and nothing else')
    const board = specification?.board && { ...specification.board, kernel }
    const request = { ...plan.request, specification: specification && { ...specification, board } }
    await expect(instances.ensure(request, ADMIN)).rejects.toThrow(
      'QEMU exited with status 1: qemu-system-x86_64: Error while loading elf kernel',
    )
    expect(leftovers(folder)).toEqual([])
  })

  it('is told by the path when a file is missing', async () => {
    const { instances, plan, folder } = await open()
    const { specification } = plan.request
    const backends = { 'root-file': file('/nowhere') }
    const request = { ...plan.request, specification: specification && { ...specification, backends } }
    await expect(instances.ensure(request, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'qemu: /nowhere: ENOENT',
    })
    expect(leftovers(folder)).toEqual([])
  })

  it('is told in its own words when the daemon of a device does not start', async () => {
    const { instances, plan, folder } = await open()
    const { specification } = plan.request
    const devices = { share: { backend: 'tree', slot: 5, share: { tag: 'tree' } } }
    const backends = { tree: { virtiofsd: { path: '/nowhere' } } }
    const request = EnsureInstanceRequest.fromPartial({
      ...plan.request,
      specification: { board: specification?.board ?? {}, devices, backends },
    })
    await expect(instances.ensure(request, ADMIN)).rejects.toThrow(
      /^virtiofsd-\w+: ended with status 1 before it made its socket: .*\/nowhere/,
    )
    expect(leftovers(folder)).toEqual([])
  })

  it.each(['a folder', 'a folder that is closed to QEMU'])(
    'names a program that this host lacks, with %s on PATH',
    async (which) => {
      const { instances, plan, folder } = await open()
      const closed = join(temporaryFolder(), 'closed')
      mkdirSync(closed, { mode: 0o700 })
      vi.stubEnv('PATH', which === 'a folder' ? '/nowhere' : closed)
      const made = instances.ensure(plan.request, ADMIN).finally(() => vi.unstubAllEnvs())
      await expect(made).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: 'qemu-system-x86_64: no such program; ./microvm doctor names its package',
      })
      expect(leftovers(folder)).toEqual([])
    },
  )

  it('names a program that QEMU’s user may not execute', async () => {
    const { instances, plan, folder } = await open()
    const bin = temporaryFolder()
    const program = join(bin, 'qemu-system-x86_64')
    writeFileSync(program, '#!/bin/sh\n', { mode: 0o700 })
    vi.stubEnv('PATH', bin)
    const made = instances.ensure(plan.request, ADMIN).finally(() => vi.unstubAllEnvs())
    await expect(made).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(new RegExp(`^${program}: user \\d+ may not execute it$`)),
    })
    expect(leftovers(folder)).toEqual([])
  })

  it('refuses the file of a disk that QEMU cannot open, and a console that the machine lacks', async () => {
    const { instances, plan } = await open()
    await instances.ensure(plan.request, ADMIN)
    const isRefused = { code: 'FAILED_PRECONDITION', message: '/nowhere: ENOENT' }
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    await expect(
      instances.plug({ key: 'web', deviceKey: 'data', device, backend: file('/nowhere') }, ADMIN),
    ).rejects.toMatchObject(isRefused)
    await expect(
      instances.replaceBackend({ key: 'web', backendKey: 'root-file', backend: file('/nowhere') }, ADMIN),
    ).rejects.toMatchObject(isRefused)
    const output = instances.console('web', Readable.from([]), ADMIN)
    await expect(output[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'instance web: the machine has no console',
    })
  })

  it('tells who uses the file of a disk', async () => {
    const { instances, plan, folder } = await open()
    await instances.ensure(plan.request, ADMIN)
    const { specification } = plan.request
    const path = join(folder, 'disks/root')
    const inUse = (by: string) => ({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(`${path}: in use by ${by}`),
    })
    const request = (key: string, tenant = '') => ({ properties: { key, tenant, labels: {} }, specification })
    await expect(instances.ensure(request('other'), ADMIN)).rejects.toMatchObject(inUse('instance web'))
    await expect(instances.ensure(request('anne', 'anne'), ADMIN)).rejects.toMatchObject(
      inUse('another process'),
    )
    const others = await openReal(temporaryFolder(), memoryRegistry())
    opened.push(others)
    await expect(others.ensure(request('other'), ADMIN)).rejects.toMatchObject(inUse('another process'))

    const own = { ...specification, backends: { 'root-file': file(plan.other) } }
    await others.ensure(EnsureInstanceRequest.fromPartial({ ...request('other'), specification: own }), ADMIN)
    await expect(
      others.replaceBackend({ key: 'other', backendKey: 'root-file', backend: file(path) }, ADMIN),
    ).rejects.toMatchObject(inUse('another process'))
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    const plug = (backend: ReturnType<typeof file>) =>
      others.plug({ key: 'other', deviceKey: 'data', device, backend }, ADMIN)
    await expect(plug(file(path))).rejects.toMatchObject(inUse('another process'))
    await expect(plug(file(plan.other))).rejects.toThrow('in use by another disk of the machine')
  })

  it('names at once what is not a file', async () => {
    const { instances, plan, folder } = await open()
    const fifo = join(folder, 'fifo')
    await promisify(execFile)('mkfifo', [fifo])
    const { specification } = plan.request
    const kernel = EnsureInstanceRequest.fromPartial({
      ...plan.request,
      specification: { ...specification, board: { ...specification?.board, kernel: fifo } },
    })
    const isRefused = (text: string) => ({ code: 'FAILED_PRECONDITION', message: text })
    await expect(instances.ensure(kernel, ADMIN)).rejects.toMatchObject(
      isRefused(`board.kernel: ${fifo}: a FIFO, want a file`),
    )
    expect(instances.list(ADMIN)).toEqual([])
    await instances.ensure(plan.request, ADMIN)
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    const text = 'a FIFO, want a file or a block device'
    await expect(
      instances.plug({ key: 'web', deviceKey: 'data', device, backend: file(fifo) }, ADMIN),
    ).rejects.toMatchObject(isRefused(`backends.data-file.file.path: ${fifo}: ${text}`))
    await expect(
      instances.replaceBackend({ key: 'web', backendKey: 'root-file', backend: file(fifo) }, ADMIN),
    ).rejects.toMatchObject(isRefused(`backends.root-file.file.path: ${fifo}: ${text}`))
  })

  it('leaves no socket of a holder that was killed', async () => {
    const { instances, plan, folder } = await open()
    const { holderPid } = await instances.ensure(plan.request, ADMIN)
    process.kill(holderPid, 'SIGKILL')
    await stopped(instances)
    const [name = ''] = readdirSync(join(folder, 'instances'))
    expect(readdirSync(join(folder, 'instances', name))).not.toContain('holder.sock')
  })
})

/** Resolves when the instance is stopped, with the reason. */
function countOf(instances: Instances, sample: string): number {
  const line = instances
    .metrics()
    .split('\n')
    .find((each) => each.startsWith(`${sample} `))
  return Number(line?.slice(sample.length) ?? 0)
}

async function stopped(instances: Instances): Promise<string> {
  for await (const { changes } of instances.watch({ after: 0n, once: false }, ADMIN)) {
    if (changes.some(({ state }) => state === State.STOPPED)) break
  }
  return (await instances.get('web', ADMIN)).reason
}

describe('a host without PID namespaces', () => {
  it('is refused by name when the instances are opened', async () => {
    const folder = temporaryFolder()
    const words = [MORTAL_DAEMON, 'machine', folder, 'ensure', '0', 'before']
    const without = ['--bounding-set=-sys_admin', '--inh-caps=-sys_admin', process.execPath]
    const run = promisify(execFile)('setpriv', [...without, ...words])
    await expect(run).rejects.toMatchObject({
      stderr: expect.stringContaining('PID namespace: cannot be made'),
    })
    expect(leftovers(folder)).toEqual([])
  })
})
