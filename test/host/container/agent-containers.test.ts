import { existsSync, type FSWatcher, watch, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { STATE_FOLDER } from '../../../src/agent/boot/state-folder.ts'
import { messageOf } from '../../../src/base/errors.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import {
  bind,
  createContainerRequest,
  execProcessRequest,
} from '../../support/containers/container-requests.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import {
  type AgentPod,
  cgroupsOf,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'

const HIERARCHY = ['/sys/fs/cgroup/pids', '/sys/fs/cgroup'].find((path) => existsSync(path))

describe('containers', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    // After its boot the agent asks the runtime for its version, whose pidfd and pipes are gone after a container's life.
    await (await pod.run('first', ['true'])).wait()
    await pod.remove('first')
    await vi.waitFor(() => expect(pod.started.openFiles()).not.toContain('anon_inode:[pidfd]'))
  })
  afterAll(() => pod.stop())

  it('live and are removed twenty at a time, and leave nothing behind', async () => {
    const ids = Array.from({ length: 20 }, (_, number) => `many-${number}`)
    const before = pod.started.openFiles()
    const statuses = ids.map(async (id, number) => {
      const init = await pod.run(id, ['sh', '-c', `read line; echo ${id} $line; exit ${number}`])
      await init.write('hears\n')
      expect((await init.readAll()).toString()).toBe(`${id} hears\n`)
      const status = await init.wait()
      await pod.remove(id)
      return status
    })
    expect(await Promise.all(statuses)).toEqual(ids.map((_, number) => number))
    expect(leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
    expect(pod.started.openFiles()).toEqual(before)
  })

  it('of one id are created once, however many calls ask at the same moment', async () => {
    const asked = await Promise.allSettled(Array.from({ length: 10 }, () => pod.create('one', ['true'])))
    expect(asked.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    const refusals = asked.flatMap((result) => (result.status === 'rejected' ? [result.reason.message] : []))
    expect(new Set(refusals)).toEqual(new Set(["container id 'one': already exists (creating)"]))
    await pod.agent.startContainer({ containerId: 'one' })
    expect(await new RemoteProcess(pod.agent, 'one').wait()).toBe(0)
    await pod.remove('one')
  })

  it('make calls wait while they are created', async () => {
    const creating = pod.create('awaited', ['sh', '-c', 'echo started; read line; exit 8'])
    const init = new RemoteProcess(pod.agent, 'awaited')
    const [output, status] = [init.readUntil('started'), init.wait()]
    const starting = pod.agent.startContainer({ containerId: 'awaited' })
    await Promise.all([creating, starting])
    expect(await output).toBe('started\n')
    await init.write('\n')
    expect(await status).toBe(8)
    await pod.remove('awaited')
  })

  it('are removed once: the second removal finds none', async () => {
    await pod.run('twice', ['sleep', '1000'])
    const removals = await Promise.allSettled([pod.remove('twice'), pod.remove('twice')])
    expect(removals.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    await expect(pod.remove('twice')).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Invalid container id',
    })
    expect(leftoversOf(pod.started, 'twice')).toEqual(NOTHING_LEFT)
  })

  it('are removed with all their processes, which ends the calls that wait for them', async () => {
    const init = await pod.run('heavy', ['sh', '-c', '(sleep 1000 &); sleep 1000'])
    const added = await pod.add('heavy', 'e', ['sh', '-c', 'sleep 1000 & sleep 1000'])
    const terminal = await pod.add('heavy', 't', ['sleep', '1000'], { terminal: true })
    const all = [init, added, terminal]
    const reads = all.flatMap((one) => [one.read('stdout'), one.read('stderr')])
    const waits = all.map((one) => one.wait())
    const writing = init.write(Buffer.alloc(1_000_000)).catch((error: unknown) => error)
    await pod.started.health.check({})
    await pod.remove('heavy')
    expect((await Promise.all(reads)).map(({ length }) => length)).toEqual([0, 0, 0, 0, 0, 0])
    expect(await Promise.all(waits)).toEqual([128 + SIGKILL, 128 + SIGKILL, 128 + SIGKILL])
    expect(await writing).toMatchObject({ code: 'INTERNAL' })
    expect(leftoversOf(pod.started, 'heavy')).toEqual(NOTHING_LEFT)
  })

  it('that were not started, or whose program cannot be executed, are removed like others', async () => {
    await pod.create('unstarted', ['true'])
    await pod.remove('unstarted')
    writeFileSync(join(pod.root, 'bin/garbage'), 'no program', { mode: 0o755 })
    const init = await pod.create('garbage', ['garbage'])
    // runc reports that such a start succeeded, and the container ends at once.
    await pod.agent.startContainer({ containerId: 'garbage' })
    expect((await init.readAll('stderr')).toString()).toContain('exec format error')
    expect(await init.wait()).not.toBe(0)
    await pod.remove('garbage')
    expect(leftoversOf(pod.started, 'unstarted', 'garbage')).toEqual(NOTHING_LEFT)
  })

  it('may have a local storage, which is removed with them', async () => {
    const script = 'echo here > /tmp/stored; cat /tmp/stored'
    const mountPoint = '/run/kata-containers/stored/local'
    const storages = [
      { driver: 'local', source: 'local', fstype: 'local', options: ['mode=0700'], mountPoint },
    ]
    const options = { storages, mounts: [bind(mountPoint, '/tmp')] }
    const init = await pod.run('stored', ['sh', '-c', script], options)
    expect((await init.readAll()).toString()).toBe('here\n')
    expect(existsSync(pod.started.inside(`${mountPoint}/stored`))).toBe(true)
    await pod.remove('stored')
    expect(leftoversOf(pod.started, 'stored')).toEqual(NOTHING_LEFT)
  })

  it('do not occupy the agent: it answers while a hundred reads are pending', async () => {
    await pod.run('readers', ['sleep', '1000'])
    const added = Array.from({ length: 50 }, (_, number) =>
      pod.add('readers', `r${number}`, ['sleep', '1000']),
    )
    const processes = await Promise.all(added)
    const reads = processes.flatMap((one) => [one.read('stdout'), one.read('stderr')])
    let settled = 0
    for (const read of reads) void read.then(() => settled++)
    expect((await pod.started.health.check({})).status).toBe(1)
    // Creating a container needs Node's thread pool for much file work, so the pool is free as well.
    const beside = await pod.run('beside-readers', ['echo', 'free'])
    expect((await beside.readAll()).toString()).toBe('free\n')
    expect(settled).toBe(0)
    for (const id of ['beside-readers', 'readers']) await pod.remove(id)
    expect(new Set((await Promise.all(reads)).map(({ length }) => length))).toEqual(new Set([0]))
    expect(leftoversOf(pod.started, 'readers', 'beside-readers')).toEqual(NOTHING_LEFT)
  })
})

describe('a caller that hangs up', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    // Its folder can be watched now. Until the process has printed, it is still the runtime's program.
    const standing = await pod.run('standing', ['sh', '-c', 'echo stands; read line'])
    await standing.readUntil('stands')
  })
  afterAll(() => pod.stop())

  function appears(folder: string): Promise<void> {
    const seen = Promise.withResolvers<void>()
    const watcher: FSWatcher = watch(pod.started.inside(folder), () => seen.resolve())
    return seen.promise.finally(() => watcher.close())
  }

  it.each([
    ['its bundle is made', () => '/run/kata-containers'],
    ['the runtime begins', () => '/run/microvm-agent/state'],
    ['its cgroups are made', () => `${HIERARCHY}${pod.started.containersCgroup}`],
  ])('when %s leaves nothing of the container it wanted', async (_when, folder) => {
    const other = await pod.started.connect()
    const moment = appears(folder())
    const lost = other.agent
      .createContainer(createContainerRequest('unwanted', pod.root, ['sleep', '1000']))
      .catch((error: unknown) => error)
    await moment
    other.close()
    expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
    // The removal is answered after the creation was undone, which may already be complete.
    const failure = await pod.remove('unwanted').catch((error: unknown) => messageOf(error))
    expect([undefined, 'Invalid container id']).toContain(failure)
    const [standing] = leftoversOf(pod.started).processes
    // A runtime that was killed may take a moment to be reaped.
    await expect
      .poll(() => leftoversOf(pod.started, 'unwanted'))
      .toEqual({ ...NOTHING_LEFT, processes: [standing] })
    const again = await pod.run('unwanted', ['echo', 'wanted'])
    expect((await again.readAll()).toString()).toBe('wanted\n')
    await pod.remove('unwanted')
  })

  it('while a process is added ends that process', async () => {
    const other = await pod.started.connect()
    const moment = appears('/run/microvm-agent/calls')
    const lost = other.agent
      .execProcess(execProcessRequest('standing', 'e', ['sleep', '4321']))
      .catch((error: unknown) => error)
    await moment
    other.close()
    expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
    // The id is free again once the failed exec is undone.
    const again = await pod.agent
      .waitProcess({ containerId: 'standing', execId: 'e' })
      .catch((error) => error)
    expect(again).toMatchObject({ code: 'NOT_FOUND' })
    const listing = await pod.add('standing', 'ps', ['ps', '-o', 'args'])
    expect((await listing.readAll()).toString()).not.toContain('4321')
    await listing.wait()
  })

  it('during a start or a removal does not stop it', async () => {
    await pod.create('left', ['sh', '-c', 'echo went on; sleep 1000'])
    const starter = await pod.started.connect()
    const starting = starter.agent.startContainer({ containerId: 'left' }).catch(() => {})
    await starter.health.check({})
    starter.close()
    await starting
    const init = new RemoteProcess(pod.agent, 'left')
    expect(await init.readUntil('went on')).toContain('went on')
    // A removal waits for the end of the start; a caller that hangs up ends that wait.
    const words = ['-a', `unix://${pod.started.path}`, '-o', 'json', 'inspect', 'left']
    const state = async () => JSON.parse((await ctl(words)).stdout).container.state
    await expect.poll(state).toBe('running')
    const remover = await pod.started.connect()
    const removing = remover.agent.removeContainer({ containerId: 'left' }).catch(() => {})
    await remover.health.check({})
    remover.close()
    await removing
    // This call waits for the removal that is already under way.
    await expect(pod.remove('left')).rejects.toMatchObject({ message: 'Invalid container id' })
    expect(cgroupsOf('left', pod.started)).toEqual([])
  })
})

describe('two agents on one machine', () => {
  it('keep the cgroups of their containers apart, and remove them', async () => {
    const pods = [await startPod(), await startPod()] as const
    try {
      for (const pod of pods) await pod.run('same', ['sleep', '1000'])
      const cgroups = pods.map(({ started }) => cgroupsOf('same', started))
      for (const [index, { started }] of pods.entries())
        expect(cgroups[index]).toContainEqual(expect.stringContaining(`${started.containersCgroup}/same`))
      await pods[0].agent.destroySandbox({})
      expect(pods.map(({ started }) => cgroupsOf('same', started))).toEqual([[], cgroups[1]])
      await pods[1].agent.destroySandbox({})
      for (const { started } of pods) expect(cgroupsOf(started.containersCgroup, started)).toEqual([])
    } finally {
      for (const pod of pods) await pod.stop()
    }
  })
})

describe('DestroySandbox', () => {
  it('removes running containers, answers, and ends the agent', async () => {
    const pod = await startPod()
    try {
      const ids = ['first', 'second', 'unstarted']
      const first = await pod.run('first', ['sleep', '1000'])
      await pod.add('first', 'e', ['sleep', '1000'])
      await pod.run('second', ['sh', '-c', 'trap "" TERM; (sleep 1000 &); sleep 1000'])
      await pod.create('unstarted', ['true'])
      const [reading, waiting] = [first.read(), first.wait()]
      await pod.started.health.check({})
      const [done, late] = await Promise.allSettled([
        pod.agent.destroySandbox({}),
        pod.agent.destroySandbox({}),
      ])
      expect(done.status).toBe('fulfilled')
      expect(late).toMatchObject({
        status: 'rejected',
        reason: { code: 'INTERNAL', message: 'failed to get sandbox sender channel' },
      })
      expect(await reading).toHaveLength(0)
      expect(await waiting).toBe(128 + SIGKILL)
      expect(ids.flatMap((id) => cgroupsOf(id, pod.started))).toEqual([])
      expect(await pod.started.exited).toBe(0)
      expect(existsSync(pod.started.path)).toBe(false)
    } finally {
      await pod.stop()
    }
  })

  it('leaves no mount of the sandbox', async () => {
    const pod = await startPod()
    try {
      const before = mountPointsOf(pod.started).filter((path) => path.startsWith('/run/'))
      expect(before.sort()).toEqual([STATE_FOLDER, '/run/sandbox-ns/ipc', '/run/sandbox-ns/uts'])
      await pod.run('mounted', ['sleep', '1000'])
      const watched = pod.started.logged({ msg: 'stopping' })
      // The agent exits after its answer, so the test checks the mounts before that.
      const destroying = pod.agent.destroySandbox({})
      await watched
      expect(mountPointsOf(pod.started).filter((path) => path.startsWith('/run/'))).toEqual([STATE_FOLDER])
      await destroying
    } finally {
      await pod.stop()
    }
  })
})
