import { execFileSync } from 'node:child_process'
import { readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { type Pod, podOf, RemoteProcess } from '../../support/containers/pod.ts'
import {
  type AgentPod,
  initPidOf,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const SHM = '/run/kata-containers/sandbox/shm'
const RESTING = ['sleep', '1000']

const outputOf = async (process: Promise<RemoteProcess>) => (await (await process).readAll()).toString()

describe('the namespaces of a sandbox', () => {
  let pod: AgentPod
  beforeAll(async () => {
    const shm = { driver: 'ephemeral', source: 'shm', fstype: 'tmpfs', options: [], mountPoint: SHM }
    // hostname(1) of Debian refuses a name with a space or an underscore, which the kernel accepts.
    pod = await startPod({}, { hostname: '-pod_name 1', storages: [shm] })
    await pod.run('first', RESTING)
  })
  afterAll(() => pod.stop())

  const namespaceOf = (id: string, kind: string) =>
    readlinkSync(`/proc/${initPidOf(pod.started, id)}/ns/${kind}`)

  it('give every container the sandbox’s host name, and the machine keeps its own', async () => {
    const before = hostname()
    await pod.run('second', ['sh', '-c', 'hostname; sleep 1000'])
    expect(await new RemoteProcess(pod.agent, 'second').readUntil('\n')).toBe('-pod_name 1\n')
    const added = await pod.add('first', 'e', ['hostname'])
    expect((await added.readAll()).toString()).toBe('-pod_name 1\n')
    expect(namespaceOf('second', 'uts')).toBe(namespaceOf('first', 'uts'))
    expect(hostname()).toBe(before)
    await pod.remove('second')
  })

  it('share System V shared memory among the containers only', async () => {
    const inside = ['-t', String(initPidOf(pod.started, 'first')), '--ipc']
    const made = execFileSync('nsenter', [...inside, 'ipcmk', '--shmem', '4096'], { encoding: 'utf8' })
    const [, id] = /id: (\d+)/.exec(made) ?? []
    const seen = await outputOf(pod.run('second', ['awk', '{ print $2, $4 }', '/proc/sysvipc/shm']))
    expect(seen).toBe(`shmid size\n${id} 4096\n`)
    expect(namespaceOf('first', 'ipc')).not.toBe(readlinkSync('/proc/self/ns/ipc'))
    await pod.remove('second')
  })

  it('let containers share /dev/shm by the sandbox’s storage', async () => {
    const mounts = [bind(SHM, '/dev/shm')]
    const writer = await pod.run('writer', ['sh', '-c', 'echo shared > /dev/shm/file'], { mounts })
    expect(await writer.wait()).toBe(0)
    expect(await outputOf(pod.run('reader', ['cat', '/dev/shm/file'], { mounts }))).toBe('shared\n')
    for (const id of ['writer', 'reader']) await pod.remove(id)
  })

  it('take the sysctls of the ipc namespace, which all containers see', async () => {
    const machine = execFileSync('cat', ['/proc/sys/kernel/shmmni'], { encoding: 'utf8' })
    const Sysctl = { 'kernel.shmmni': '77', 'kernel.msgmax': '16384', 'fs.mqueue.msg_max': '11' }
    const look = 'cat /proc/sys/kernel/shmmni /proc/sys/kernel/msgmax /proc/sys/fs/mqueue/msg_max'
    expect(await outputOf(pod.run('setter', ['sh', '-c', look], { linux: { Sysctl } }))).toBe(
      '77\n16384\n11\n',
    )
    expect(await outputOf(pod.run('other', ['sh', '-c', look]))).toBe('77\n16384\n11\n')
    expect(execFileSync('cat', ['/proc/sys/kernel/shmmni'], { encoding: 'utf8' })).toBe(machine)
    for (const id of ['setter', 'other']) await pod.remove(id)
  })

  it.each(['kernel.hostname', 'kernel.panic', 'vm.swappiness'])(
    'refuse the sysctl %s, which is the whole guest’s, and leave nothing behind',
    async (name) => {
      const refused = pod.run('greedy', ['true'], { linux: { Sysctl: { [name]: '1' } } })
      await expect(refused).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringContaining(name),
      })
      const [first] = leftoversOf(pod.started, 'first').processes
      expect(leftoversOf(pod.started, 'greedy')).toEqual({ ...NOTHING_LEFT, processes: [first] })
    },
  )

  it('are unmounted one by one: no mount of the pid namespace outlives the container that made it', async () => {
    expect(mountPointsOf(pod.started)).toContain('/run/sandbox-ns/pid')
    await pod.remove('first')
    expect(mountPointsOf(pod.started)).not.toContain('/run/sandbox-ns/pid')
  })
})

describe('containers without a sandbox', () => {
  let started: AgentProcess
  let pod: Pod
  let folder: string
  beforeAll(async () => {
    folder = temporaryFolder()
    started = await startAgent()
    pod = podOf(started.agent, busyboxRoot(folder))
  })
  afterAll(() => started.stop())

  it('have namespaces of their own, and share a pid namespace where they ask for it', async () => {
    const namespaces = 'readlink /proc/self/ns/ipc; readlink /proc/self/ns/uts'
    const own = await pod.output('one', namespaces)
    for (const kind of ['ipc', 'uts']) {
      expect(own).not.toContain(readlinkSync(`/proc/${started.agentPid()}/ns/${kind}`))
    }
    await pod.run('maker', ['sleep', '1003'], { sandboxPidns: true })
    expect(await pod.output('joined', 'ps -o args', { sandboxPidns: true })).toContain('sleep 1003')
  })

  it('stay when a sandbox is created, and are removed with it', async () => {
    await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'late' })
    expect(await pod.output('after', 'hostname')).toBe('late\n')
    const added = await pod.add('maker', 'e1', ['echo', 'alive'])
    expect((await added.readAll()).toString()).toBe('alive\n')
    await pod.remove('maker')
    expect(leftoversOf(started, 'one', 'maker', 'joined', 'after')).toEqual(NOTHING_LEFT)
    await started.agent.destroySandbox({})
  })
})

describe('the pid namespace of a sandbox', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  const sharing = { sandboxPidns: true }
  async function processesSeenBy(id: string): Promise<string> {
    const ps = await pod.add(id, 'ps', ['ps', '-o', 'args'])
    const seen = (await ps.readAll()).toString()
    await ps.wait()
    return seen
  }

  it('is shared by those that ask for it, also when all are created at the same moment', async () => {
    const ids = ['first', 'second', 'third']
    await Promise.all(ids.map((id) => pod.run(id, ['sleep', '1001'], sharing)))
    await pod.run('apart', RESTING)
    expect((await processesSeenBy('second')).match(/sleep 1001/g)).toHaveLength(3)
    expect(await processesSeenBy('apart')).not.toContain('sleep 1001')
    await pod.remove('second')
    expect((await processesSeenBy('third')).match(/sleep 1001/g)).toHaveLength(2)
  })

  it('ends with its first process: all processes in it are killed, and no container can join', async () => {
    const third = new RemoteProcess(pod.agent, 'third').wait()
    await pod.agent.signalProcess({ containerId: 'first', signal: SIGKILL })
    expect(await third).toBe(128 + SIGKILL)
    await new RemoteProcess(pod.agent, 'first').wait()
    await expect(pod.create('late', ['true'], sharing)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^Sandbox does not have sandbox_pidns: it ended with container first/),
    })
    await expect(pod.add('third', 'e', ['true'])).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(await processesSeenBy('apart')).toContain('sleep 1000')
  })

  it('is made anew by the next container that asks, once its owner is removed', async () => {
    await pod.remove('first')
    await pod.run('again', ['sleep', '1002'], sharing)
    await pod.run('beside', ['sleep', '1002'], sharing)
    expect((await processesSeenBy('beside')).match(/sleep 1002/g)).toHaveLength(2)
    const ids = ['third', 'apart', 'again', 'beside']
    for (const id of ids) await pod.remove(id)
    expect(leftoversOf(pod.started, 'first', 'second', 'late', ...ids)).toEqual(NOTHING_LEFT)
  })

  it('is that of the next container when the creation of the first one fails', async () => {
    const failing = pod.create('failing', ['nosuch'], sharing)
    const next = pod.run('next', RESTING, sharing)
    await expect(failing).rejects.toMatchObject({ message: expect.stringContaining('nosuch was not found') })
    await next
    expect((await processesSeenBy('next')).split('\n')[1]).toBe(RESTING.join(' '))
    await pod.remove('next')
    expect(leftoversOf(pod.started, 'failing', 'next')).toEqual(NOTHING_LEFT)
  })
})
