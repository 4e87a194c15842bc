import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Hook, LinuxResources } from '../../../src/gen/oci.ts'
import {
  ContainerRecord,
  Phase,
  readContainerRecords,
} from '../../../src/handlers/container/container-record.ts'
import { Phase as SandboxPhase } from '../../../src/handlers/sandbox/sandbox-record.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { EMPTY_RESPONSE } from '../../../src/state/request-journal.ts'
import { numbered } from '../../support/handlers/call.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
  renameRequest,
  sandboxRequest,
} from '../../support/handlers/machine.ts'
import { write } from '../../support/handlers/stdio-ends.ts'
import {
  forgetPids,
  isAnswered,
  OPEN,
  recordContainer,
  recordSandbox,
  recordsIn,
  successorOf,
} from '../../support/handlers/successor.ts'

const wait = ({ handlers }: Machine, execId = '') =>
  handlers.waitProcess({ containerId: 'c1', execId }, neverAborted)

describe('an agent after one that died', () => {
  it('goes on with a running container, its output and its exit', async () => {
    const before = await machineWithContainer()
    const { stdout, pid } = before.runtime.last()
    write(before.os, stdout, 'before ')
    const after = await successorOf(before)
    write(after.os, stdout, 'and after')
    const read = await after.handlers.readStdout({ containerId: 'c1', execId: '', len: 100 }, neverAborted)
    expect(Buffer.from(read.read()).toString()).toBe('before and after')
    before.runtime.end(pid, { code: 3 })
    expect((await wait(after)).status).toBe(3)
    await after.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(after.state.names()).toEqual(['sandbox', 'events'])
    expect(after.os.descriptors.stored).toEqual([])
  })

  it('goes on with a container that has another id now, of which nothing else has another name', async () => {
    const before = await machineWithSandbox()
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    await before.handlers.rename(renameRequest({ c1: 'renamed' }), neverAborted)
    const after = await successorOf(before)
    const { handlers } = after
    const container = { containerId: 'renamed' }
    await handlers.startContainer(container, neverAborted)
    await handlers.execProcess(execRequest('renamed', 'e1'), neverAborted)
    await handlers.pauseContainer(container, neverAborted)
    await handlers.resumeContainer(container, neverAborted)
    await handlers.updateContainer({ ...container, resources: LinuxResources.create() }, neverAborted)
    await expect(handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toThrow(
      "container id 'c1': names what container 'renamed' has in the guest, until that is removed",
    )
    await handlers.removeContainer({ ...container, timeout: 0 }, neverAborted)
    expect(after.runtime.calls).toEqual(['create', 'start', 'exec', 'pause', 'resume', 'update', 'delete'])
    const { files, state } = await remains(after)
    expect([...files, ...state].filter((path) => /c1|renamed/.test(path))).toEqual([])
    await handlers.createContainer(containerRequest('c1'), neverAborted)
  })

  it('goes on with the sandbox, which it can destroy', async () => {
    const before = await machineWithContainer()
    const after = await successorOf(before)
    await expect(after.handlers.createSandbox(sandboxRequest(), neverAborted)).rejects.toThrow(
      "sandbox 'pod': already exists",
    )
    await after.handlers.destroySandbox({}, neverAborted)
    expect(after.os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    expect((await remains(after)).state).toEqual(['sandbox'])
    expect((await successorOf(after)).context.sandboxState.view.name).toBe('destroyed')
    await expect(after.handlers.destroySandbox({}, neverAborted)).rejects.toThrow('failed to get sandbox')
  })

  it('destroys a sandbox of which the previous agent had released the storages', async () => {
    const mountPoint = '/run/kata-containers/sandbox/shm'
    const before = await machine()
    const shm = { driver: 'ephemeral', source: 'shm', fstype: 'tmpfs', mountPoint }
    await before.handlers.createSandbox(sandboxRequest({ storages: [shm] }), neverAborted)
    await before.context.storage.release({ mountPoints: [mountPoint] })
    await before.context.storage.clear()
    recordSandbox(before, { phase: SandboxPhase.DESTROYING, storages: [mountPoint] })
    const after = await successorOf(before)
    await after.handlers.destroySandbox({}, neverAborted)
    expect((await remains(after)).state).toEqual(['sandbox'])
  })

  it('knows the container that has become the maker of the pid namespace while it was made', async () => {
    const before = await machineWithContainer()
    const held = Promise.withResolvers<undefined>()
    before.runtime.refuse = (verb) => (verb === 'create' ? held.promise : undefined)
    const making = before.handlers.createContainer(containerRequest('c2'), neverAborted)
    await expect.poll(() => before.runtime.calls.filter((verb) => verb === 'create')).toHaveLength(2)
    await before.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    held.resolve(undefined)
    await making
    const after = await successorOf(before)
    await after.handlers.removeContainer({ containerId: 'c2', timeout: 0 }, neverAborted)
    expect(after.os.mounts.entries.map(({ mountPoint }) => mountPoint)).not.toContain('/run/sandbox-ns/pid')
  })

  it.each([OPEN, 6n])('stops once DestroySandbox, request %i, has its answer', async (number) => {
    const before = await machineWithContainer()
    await before.handlers.destroySandbox({}, neverAborted)
    recordSandbox(before, { request: number, phase: SandboxPhase.DESTROYED })
    const told = Promise.withResolvers<'written'>()
    const after = await successorOf(before, new Map(), told.promise)
    expect(isAnswered(after)).toBe(number === OPEN)
    await expect(after.handlers.getOomEvent({}, neverAborted)).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(after.destroyed()).toBe(0)
    told.resolve('written')
    await expect.poll(after.destroyed).toBe(1)
  })

  it('goes on with processes that were added, and gives their keys to no other', async () => {
    const before = await machineWithContainer()
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const { pid } = before.runtime.last()
    const after = await successorOf(before)
    await after.handlers.execProcess(execRequest('c1', 'e2'), neverAborted)
    before.runtime.end(pid, { code: 4 })
    const exit = await wait(after, 'e1')
    expect(exit.status).toBe(4)
    exit.delivered()
    const [saved] = readContainerRecords(recordsIn(after.state))
    expect(saved?.execs.map(({ execId, key }) => [execId, key])).toEqual([['e2', 'p3']])
    await expect(wait(await successorOf(after), 'e1')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('writes no more for an added process beside 200 others than for a single one', async () => {
    const before = await machineWithContainer()
    const bytesOf = async (execId: string) => {
      const { writtenBytes } = before.state
      await before.handlers.execProcess(execRequest('c1', execId), neverAborted, OPEN)
      return before.state.writtenBytes - writtenBytes
    }
    const first = await bytesOf('e000')
    for (let count = 1; count < 200; count += 1) {
      await before.handlers.execProcess(execRequest('c1', `e${100 + count}`), neverAborted)
    }
    expect(await bytesOf('e999')).toBeLessThanOrEqual(first + 8)
    const { pid } = before.runtime.last()
    const after = await successorOf(before)
    before.runtime.end(pid, { code: 9 })
    expect((await wait(after, 'e999')).status).toBe(9)
  })

  it.each([
    ['forgets a process whose exit status was told', 'written', false],
    ['keeps a process whose exit status was not told', 'dropped', true],
  ] as const)('%s', async (_what, outcome, isKept) => {
    const before = await machineWithContainer()
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    before.runtime.end(before.runtime.last().pid, { code: 4 })
    await before.handlers.waitProcess({ containerId: 'c1', execId: 'e1' }, neverAborted, 8n)
    const after = await successorOf(before, new Map([[8n, outcome]]))
    const again = after.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    if (isKept) await expect(again).rejects.toThrow("exec_id 'e1' already exists")
    else await again
  })

  it('reports a container whose kill is counted late', async () => {
    const before = await machineWithSandbox()
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    const file = '/sys/fs/cgroup/memory/containers/c1/memory.oom_control'
    await before.os.files.put(file, 'oom_kill 0\n')
    await before.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const after = await successorOf(before)
    const { clock } = after.os
    await expect.poll(() => clock.sleeping).toBe(1)
    await before.os.files.put(file, 'oom_kill 1\n')
    clock.advance(10)
    expect((await after.handlers.getOomEvent({}, neverAborted)).containerId).toBe('c1')
  })

  it.each([
    ['reports a container that ran out of memory meanwhile', 1, 0],
    ['reports no container again whose event the previous agent had queued', 2, 1],
  ])('%s', async (_what, kills, queued) => {
    const before = await machineWithSandbox()
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    const file = '/sys/fs/cgroup/memory/containers/c1/memory.oom_control'
    await before.os.files.put(file, 'oom_kill 0\n')
    await before.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await before.os.files.put(file, `oom_kill ${kills}\n`)
    if (queued > 0) {
      before.os.cgroupEvents.happen(file)
      await expect.poll(() => readContainerRecords(recordsIn(before.state))[0]?.fields.oomKills).toBe(2n)
      // Takes back the second save, as a death before it does.
      recordContainer(before, { oomKills: 0n })
    }
    const after = await successorOf(before)
    expect((await after.handlers.getOomEvent({}, neverAborted)).containerId).toBe('c1')
    const more = after.handlers.getOomEvent({}, AbortSignal.timeout(50))
    await expect(more).rejects.toMatchObject({ name: 'TimeoutError' })
    const third = await successorOf(after)
    const again = third.handlers.getOomEvent({}, AbortSignal.timeout(50))
    await expect(again).rejects.toMatchObject({ name: 'TimeoutError' })
  })

  it('says of a container that ended meanwhile that it ran out of memory', async () => {
    const before = await machineWithSandbox()
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    const file = '/sys/fs/cgroup/memory/containers/c1/memory.oom_control'
    await before.os.files.put(file, 'oom_kill 0\n')
    await before.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const { pid } = before.runtime.last()
    const { exits } = before.os
    // Takes the exit from the agent that this test calls dead.
    exits.exit(pid, { signal: 9 })
    await expect.poll(() => before.context.events.exits()).toMatchObject([{ oomKilled: false }])
    await before.os.files.put(file, 'oom_kill 1\n')
    exits.watch()
    exits.exit(pid, { signal: 9 })
    const after = await successorOf(before)
    await expect.poll(() => after.context.events.exits()).toMatchObject([{ status: 137, oomKilled: true }])
  })

  it('reports a container that ran out of memory whose id had another one, of which an event waits', async () => {
    const before = await machineWithSandbox()
    const file = '/sys/fs/cgroup/memory/containers/c1/memory.oom_control'
    const kill = async () => {
      await before.os.files.put(file, 'oom_kill 1\n')
      before.os.cgroupEvents.happen(file)
    }
    const start = async () => {
      await before.handlers.createContainer(containerRequest('c1'), neverAborted)
      await before.os.files.put(file, 'oom_kill 0\n')
      await before.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    }
    await start()
    await kill()
    await expect.poll(() => readContainerRecords(recordsIn(before.state))[0]?.fields.oomKills).toBe(1n)
    await before.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    before.os.clock.advance(1)
    await start()
    const after = await successorOf(before)
    await kill()
    for (const _ of ['of the first', 'of the second']) {
      const event = await after.handlers.getOomEvent({}, AbortSignal.timeout(1000))
      expect(event.containerId).toBe('c1')
    }
  })

  it('ends a container whose journal of output is damaged, and leaves nothing of it', async () => {
    const before = await machineWithContainer()
    const { streams, descriptors } = before.os
    write(before.os, before.runtime.last().stdout, 'shown')
    await before.handlers.readStdout({ containerId: 'c1', execId: '', len: 100 }, neverAborted)
    const journal = descriptors.fds.find((fd) => streams.isMemoryFile(fd)) ?? -1
    streams.writeAt(journal, 8, Buffer.of(1))
    const after = await successorOf(before)
    expect(after.context.containers.list()).toEqual([])
    expect(descriptors.stored).toEqual([])
    expect(await remains(after)).toMatchObject({ processes: 0 })
  })

  it('watches no memory of a container whose added process has a damaged journal', async () => {
    const before = await machineWithSandbox()
    const { streams, descriptors, cgroupEvents, files } = before.os
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    await files.put('/sys/fs/cgroup/memory/containers/c1/memory.oom_control', 'oom_kill 0\n')
    await before.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    write(before.os, before.runtime.last().stdout, 'shown')
    await before.handlers.readStdout({ containerId: 'c1', execId: 'e1', len: 100 }, neverAborted)
    const journal = descriptors.fds.find((fd) => streams.isMemoryFile(fd)) ?? -1
    streams.writeAt(journal, 8, Buffer.of(1))
    const ofTheDead = cgroupEvents.watched
    const after = await successorOf(before)
    expect(after.context.containers.list()).toEqual([])
    expect(cgroupEvents.watched).toEqual(ofTheDead)
  })

  it('leaves no descriptor of a container that cannot be restored', async () => {
    const before = await machineWithContainer()
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted, OPEN)
    await before.os.files.put('/run/microvm-agent/runtime/calls/p2/pid', `${before.runtime.last().pid}`)
    forgetPids(before)
    before.state.beforeChange = (path) => {
      before.state.beforeChange = () => {}
      throw kernelError('write', path, 'EIO')
    }
    const after = await successorOf(before)
    expect(after.context.containers.list()).toEqual([])
    expect(after.os.descriptors.stored).toEqual([])
  })

  it.each([
    ['start', 'startContainer', Phase.CREATED],
    ['pause', 'pauseContainer', Phase.RUNNING],
  ] as const)('does not answer for a %s that has failed', async (verb, method, phase) => {
    const before = await (verb === 'start' ? machineWithSandbox() : machineWithContainer())
    if (verb === 'start') await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    before.runtime.refuse = (called) => (called === verb ? { exitCode: 1 } : undefined)
    await expect(before.handlers[method]({ containerId: 'c1' }, neverAborted, OPEN)).rejects.toThrow(verb)
    expect(readContainerRecords(recordsIn(before.state))[0]?.fields.phase).toBe(phase)
    expect(isAnswered(await successorOf(before))).toBe(false)
  })

  it.each([
    ['is removed, its answer recorded', { phase: Phase.REMOVING, request: OPEN }, 2],
    ['cannot be restored', { hasSharedMounts: true, init: undefined }, 0],
  ])('leaves a sysctl as a container has set it that %s', async (_what, fields, exits) => {
    const before = await machineWithContainer()
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const path = '/proc/sys/net/core/optmem_max'
    await before.os.files.put(path, '3')
    recordContainer(before, { ...fields, sysctls: [{ path, before: '1' }] })
    if ('request' in fields) before.context.requests.answer(numbered(OPEN), EMPTY_RESPONSE)
    const after = await successorOf(before)
    expect(after.context.containers.list()).toEqual([])
    expect(await after.os.files.readText(path)).toBe('3')
    expect(after.context.events.exits()).toHaveLength(exits)
  })

  it('undoes a creation that had come to no process, and lets its caller create again', async () => {
    const before = await machineWithSandbox()
    new ContainerRecord(recordsIn(before.state), { key: 'c1', cgroupPath: '/containers/c1' }).save({
      request: OPEN,
      sysctls: [{ path: '/proc/sys/net/core/somaxconn', before: '77' }],
      vfioDevices: ['0000:00:05.0'],
    })
    const override = '/sys/bus/pci/devices/0000:00:05.0/driver_override'
    await before.os.files.put(override, 'vfio-pci\n')
    await before.os.files.put('/sys/bus/pci/drivers_probe', '')
    const after = await successorOf(before)
    expect(isAnswered(after)).toBe(false)
    expect(await after.os.files.readText(override)).toBe('\n')
    expect(await after.os.files.readText('/sys/bus/pci/drivers_probe')).toBe('0000:00:05.0')
    expect(await after.os.files.readText('/proc/sys/net/core/somaxconn')).toBe('77')
    await after.handlers.createContainer(containerRequest('c1'), neverAborted, OPEN)
  })

  it('runs the poststart hooks that were not begun, and answers the start after them', async () => {
    const before = await machineWithContainer()
    const poststart = ['/a', '/b', '/c'].map((Path) => Hook.fromPartial({ Path, Timeout: 3n }))
    recordContainer(before, { phase: Phase.STARTING, request: OPEN, poststart, hooksBegun: 1 })
    before.os.tools.calls.length = 0
    const after = await successorOf(before)
    expect(isAnswered(after)).toBe(false)
    expect(await after.context.requests.answerTo(OPEN)).toEqual(EMPTY_RESPONSE)
    expect(before.os.tools.calls.map(({ argv }) => argv[0])).toEqual(['/b', '/c'])
    await after.handlers.pauseContainer({ containerId: 'c1' }, neverAborted)
  })

  it('does not repeat the startContainer hooks that were begun', async () => {
    const before = await machineWithSandbox()
    await before.handlers.createContainer(containerRequest('c1'), neverAborted)
    const startContainer = [Hook.fromPartial({ Path: '/a', Timeout: 3n })]
    await before.os.files.put(`/proc/${before.runtime.last().pid}/status`, 'NSpid:\t1001\t1\n')
    recordContainer(before, { phase: Phase.STARTING, request: OPEN, startContainer, hooksBegun: 1 })
    const after = await successorOf(before)
    await after.handlers.startContainer({ containerId: 'c1' }, neverAborted, OPEN)
    expect(after.runtime.calls).toEqual(['create', 'start'])
  })

  it.each([
    ['that waits in the console socket', ['console'], true],
    ['that is stored without its input', ['master'], true],
    ['that is lost, of a process that is made again', [], false],
  ] as const)('goes on with the terminal of an added process %s', async (_what, names, isKept) => {
    const before = await machineWithContainer()
    const exec = execRequest('c1', 'e1', { Terminal: true })
    await before.handlers.execProcess(exec, neverAborted, OPEN)
    const { pid, stdin: slave } = before.runtime.last()
    forgetPids(before)
    await before.os.files.put('/run/microvm-agent/runtime/calls/p2/pid', `${pid}`)
    const { descriptors, streams, consoles } = before.os
    descriptors.restart()
    const master = descriptors.take('p2-master') ?? -1
    if (names[0] === 'console') {
      await descriptors.store('p2-console', streams.memoryFile('console socket'))
      consoles.waiting.push(streams.duplicate(master))
    }
    if (names[0] !== 'master') await descriptors.remove('p2-master')
    await descriptors.remove('p2-stdin')
    const after = await successorOf(before)
    expect(isAnswered(after)).toBe(isKept)
    expect(after.os.descriptors.stored).not.toContain('p2-console')
    if (!isKept) {
      expect(after.runtime.processes.map((one) => one.pid)).not.toContain(pid)
      await after.handlers.execProcess(exec, neverAborted, OPEN)
      return
    }
    await after.handlers.writeStdin(
      { containerId: 'c1', execId: 'e1', data: Buffer.from('typed') },
      neverAborted,
    )
    expect(Buffer.from(after.os.streams.tryRead(slave, 10) ?? []).toString()).toBe('typed')
  })

  it('removes what is left of a record whose removal was under way', async () => {
    const before = await machineWithContainer()
    before.state.beforeChange = (path) => {
      // The agent dies when the first file is gone.
      if (path === 'containers/c1') throw new Error('dead')
    }
    const [found] = readContainerRecords(recordsIn(before.state))
    expect(() => found?.remove()).toThrow('dead')
    before.state.beforeChange = () => {}
    expect(before.state.names()).toEqual(expect.arrayContaining(['containers/c1/spec']))
    const after = await successorOf(before)
    expect(after.context.containers.list()).toEqual([])
    expect(after.state.names().filter((name) => name.startsWith('containers'))).toEqual([])
  })

  it('ends and removes a container that it cannot go on with, and keeps the others', async () => {
    const before = await machineWithContainer()
    await before.handlers.createContainer(containerRequest('c2'), neverAborted)
    recordContainer(before, { init: undefined })
    const after = await successorOf(before)
    expect(after.context.containers.list().map(({ id }) => id)).toEqual(['c2'])
    expect(after.runtime.processes.map(({ containerId }) => containerId)).toEqual(['c2'])
  })

  it('restores nothing when it cannot restore all: it ends, and the next ones say so until CreateSandbox', async () => {
    const before = await machineWithContainer()
    await before.handlers.createContainer(containerRequest('c2'), neverAborted)
    recordContainer(before, { init: undefined })
    before.state.beforeChange = (path) => {
      if (path.startsWith('containers/c1')) throw kernelError('write', path, 'EIO')
    }
    await expect(successorOf(before)).rejects.toThrow(
      'saved state not restored: write containers/c1/record: EIO',
    )
    before.state.beforeChange = () => {}
    const after = await successorOf(await successorOf(before))
    await expect(wait(after)).rejects.toMatchObject({ code: 'INTERNAL', message: 'Dead agent: restarted' })
    expect([after.runtime.processes, after.os.descriptors.stored]).toEqual([[], []])
    await after.handlers.createSandbox(sandboxRequest(), neverAborted)
    await expect(wait(after)).rejects.toThrow('Invalid container id')
  })

  it('finishes a creation beside containers that go on, and restores each once', async () => {
    const before = await machineWithContainer()
    await before.handlers.createContainer(containerRequest('c2'), neverAborted, OPEN)
    const { stdin } = before.runtime.last()
    const [, second] = readContainerRecords(recordsIn(before.state))
    second?.save({ phase: Phase.CREATING })
    const after = await successorOf(before)
    expect(isAnswered(after)).toBe(true)
    for (const containerId of ['c1', 'c2'])
      await after.handlers.writeStdin({ containerId, execId: '', data: Buffer.from('typed') }, neverAborted)
    expect(Buffer.from(after.os.streams.tryRead(stdin, 10) ?? []).toString()).toBe('typed')
  })

  it('does nothing when none has died', async () => {
    const made = await machine()
    await made.os.files.put('/run/kata-containers/x', '')
    await made.handlers.restore()
    expect(await made.os.files.list('/run/kata-containers')).toEqual(['x'])
  })
})
