import { existsSync, readFileSync, watch, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { STATE_FOLDER } from '../../../src/agent/boot/state-folder.ts'
import { createContainerRequest, execProcessRequest } from '../../support/containers/container-requests.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import {
  type AgentPod,
  cgroupsOf,
  initPidOf,
  inNamespaceOf,
  killWithState,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { type AgentConnection, type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

type Call = readonly [name: string, call: (agent: AgentConnection['agent']) => Promise<unknown>]

const CONTAINER_CALLS: readonly Call[] = [
  ['CreateContainer', (agent) => agent.createContainer(createContainerRequest('c1', '/', ['true']))],
  ['StartContainer', (agent) => agent.startContainer({ containerId: 'c1' })],
  ['RemoveContainer', (agent) => agent.removeContainer({ containerId: 'c1' })],
  ['UpdateContainer', (agent) => agent.updateContainer({ containerId: 'c1' })],
  ['GetOOMEvent', (agent) => agent.getOOMEvent({})],
  [
    'GetDiagnosticData',
    (agent) => agent.getDiagnosticData({ containerId: 'c1', logType: 'termination_log' }),
  ],
  ['StatsContainer', (agent) => agent.statsContainer({ containerId: 'c1' })],
  ['PauseContainer', (agent) => agent.pauseContainer({ containerId: 'c1' })],
  ['ResumeContainer', (agent) => agent.resumeContainer({ containerId: 'c1' })],
  ['ExecProcess', (agent) => agent.execProcess(execProcessRequest('c1', 'e', ['true']))],
  ['SignalProcess', (agent) => agent.signalProcess({ containerId: 'c1', signal: 9 })],
  ['WaitProcess', (agent) => agent.waitProcess({ containerId: 'c1' })],
  ['WriteStdin', (agent) => agent.writeStdin({ containerId: 'c1', data: Buffer.from('x') })],
  ['ReadStdout', (agent) => agent.readStdout({ containerId: 'c1', len: 1 })],
  ['ReadStderr', (agent) => agent.readStderr({ containerId: 'c1', len: 1 })],
  ['CloseStdin', (agent) => agent.closeStdin({ containerId: 'c1' })],
  ['TtyWinResize', (agent) => agent.ttyWinResize({ containerId: 'c1', row: 1, column: 1 })],
]

describe('the process of an agent', () => {
  const nameOf = (started: AgentProcess) => readFileSync(`/proc/${started.agentPid()}/comm`, 'utf8')

  it('is called kata-agent, as those who look for it expect', async () => {
    const started = await startAgent()
    try {
      expect(nameOf(started)).toBe('kata-agent\n')
    } finally {
      await started.stop()
    }
  })

  it('has the name that its configuration gives', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'agent.toml'), 'process_name = "my-agent"\n')
    const started = await startAgent({ args: ['--config', join(folder, 'agent.toml')] })
    try {
      expect(nameOf(started)).toBe('my-agent\n')
    } finally {
      await started.stop()
    }
  })
})

describe('an agent that is killed, and whose state cannot be read', () => {
  let pod: AgentPod
  let after: AgentConnection
  const pids: number[] = []
  beforeAll(async () => {
    pod = await startPod({}, { dns: ['nameserver 192.0.2.1'] })
    expect(inNamespaceOf(pod.started, 'cat', '/etc/resolv.conf')).toBe('nameserver 192.0.2.1')
    const resting = ['sh', '-c', '(trap "" TERM; sleep 1000 &); sleep 1000']
    await pod.run('c1', resting)
    await pod.add('c1', 'e', ['sleep', '1000'])
    await pod.run('terminal', resting, { terminal: true })
    await pod.create('unstarted', ['true'])
    pids.push(...['c1', 'terminal', 'unstarted'].map((id) => initPidOf(pod.started, id)))
    killWithState(pod.started)
    await pod.started.logged({ msg: 'agent restarted: sandbox lost' })
    after = await pod.started.connect()
  })
  afterAll(async () => {
    after.close()
    await pod.stop()
  })

  it('is replaced by one that removes what it left', async () => {
    await expect.poll(() => pids.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([])
    expect(['c1', 'terminal', 'unstarted'].flatMap((id) => cgroupsOf(id, pod.started))).toEqual([])
    const mounts = mountPointsOf(pod.started).filter((path) => path.startsWith('/run/'))
    expect(mounts).toEqual([STATE_FOLDER])
    for (const folder of ['/run/kata-containers', '/run/microvm-agent/state'])
      expect(inNamespaceOf(pod.started, 'ls', folder), folder).toBe('')
    expect(inNamespaceOf(pod.started, 'ls', STATE_FOLDER)).toBe('events\nlifecycle\nsandbox\n')
    expect(inNamespaceOf(pod.started, 'cat', '/etc/resolv.conf')).toBe(
      readFileSync('/etc/resolv.conf', 'utf8'),
    )
  })

  it('is reported', () => {
    const critical = pod.started.log.filter(({ level }) => level === 'CRIT')
    expect(critical).toEqual([
      expect.objectContaining({ msg: 'saved state not restored' }),
      expect.objectContaining({ msg: 'agent restarted: sandbox lost', containers: '3' }),
    ])
  })

  it.each(CONTAINER_CALLS)('makes %s fail until there is a sandbox again', async (_name, call) => {
    await expect(call(after.agent)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Dead agent: restarted',
    })
  })

  it('does not affect Check and GetGuestDetails', async () => {
    expect((await after.health.check({})).status).toBe(1)
    expect((await after.agent.getGuestDetails({})).agentDetails).toBeDefined()
  })

  it('is forgotten after CreateSandbox: the same containers run again', async () => {
    await after.agent.createSandbox({ sandboxId: 'pod', hostname: 'again' })
    await after.agent.createContainer(
      createContainerRequest('c1', pod.root, ['sh', '-c', 'hostname; exit 5']),
    )
    await after.agent.startContainer({ containerId: 'c1' })
    const init = new RemoteProcess(after.agent, 'c1')
    expect((await init.readAll()).toString()).toBe('again\n')
    expect(await init.wait()).toBe(5)
    await after.agent.removeContainer({ containerId: 'c1' })
  })

  it('may be killed again, also without a sandbox', async () => {
    killWithState(pod.started)
    // The earlier connection lasts.
    await expect(after.agent.waitProcess({ containerId: 'c1' })).rejects.toMatchObject({
      message: 'Dead agent: restarted',
    })
    await after.agent.createSandbox({ sandboxId: 'pod', hostname: 'again' })
  })
})

describe('an agent that is killed in the middle of a creation', () => {
  it('is replaced by one that ends the runtime where it hangs, and creates again for the caller', async () => {
    const pod = await startPod()
    try {
      const tmp = `${pod.root}/tmp`
      const script = `test ! -e ${tmp}/began || exit 0; echo > ${tmp}/began; exec sleep 1000`
      const hook = { Path: `${pod.root}/bin/busybox`, Args: ['sh', '-c', script] }
      const began = appearance(join(pod.root, 'tmp'))
      const creating = pod.create('half', ['sleep', '1000'], { spec: { Hooks: { CreateRuntime: [hook] } } })
      await began
      expect(leftoversOf(pod.started, 'half').processes).not.toEqual([])
      process.kill(pod.started.agentPid(), 'SIGKILL')
      await creating
      await pod.remove('half')
      expect(leftoversOf(pod.started, 'half')).toEqual(NOTHING_LEFT)
    } finally {
      await pod.stop()
    }
  })
})

describe('an agent that is asked to stop', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'by %s takes its containers away and ends with status 0',
    async (signal) => {
      const pod = await startPod()
      try {
        const init = await pod.run('stopped', ['sh', '-c', 'trap "" TERM; (sleep 1000 &); sleep 1000'])
        const pid = initPidOf(pod.started, 'stopped')
        const waiting = init.wait()
        await pod.started.health.check({})
        process.kill(pod.started.vminitPid, signal)
        expect(await waiting).toBe(137)
        expect(await pod.started.exited).toBe(0)
        expect(existsSync(`/proc/${pid}`)).toBe(false)
        expect(cgroupsOf('stopped', pod.started)).toEqual([])
        expect(existsSync(pod.started.path)).toBe(false)
        expect(pod.started.log.at(-1)).toMatchObject({ msg: 'stopped' })
      } finally {
        await pod.stop()
      }
    },
  )
})

describe('the limits of the agent', () => {
  it('do not leak into a helper program, nor into a container, except that of open files', async () => {
    const folder = temporaryFolder()
    const pod = await startPod()
    const started = await startAgent()
    try {
      const [own = 0, hard = 0] = [pod.started, started].map(({ agentPid }) => setApart(agentPid()))
      const look = 'ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj'
      const init = await pod.run('limits', ['sh', '-c', `${look}; read line`])
      expect((await init.readUntil('\n0\n')).toString()).toBe(`${own}\n${own}\n0\n`)
      const added = await pod.add('limits', 'e', ['sh', '-c', look])
      expect((await added.readAll()).toString()).toBe(`${own}\n${own}\n0\n`)
      // modprobe, a helper program besides the runtime, is replaced in the agent's mount namespace.
      const modprobe = join(folder, 'modprobe')
      writeFileSync(modprobe, `#!/bin/sh\n{ ${look}; } > ${folder}/seen\n`, { mode: 0o755 })
      inNamespaceOf(started, 'mount', '--bind', modprobe, '/sbin/modprobe')
      await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'h', kernelModules: [{ name: 'any' }] })
      expect(readFileSync(join(folder, 'seen'), 'utf8')).toBe(`1024\n${Math.min(524_288, hard)}\n0\n`)
    } finally {
      await started.stop()
      await pod.stop()
    }
  })
})

/**
 * Gives the agent attributes of a guest's agent that an ordinary process lacks, as far as this machine permits. Returns its
 * hard limit of open files, to which the agent raises the soft one.
 */
function setApart(pid: number): number {
  writeFileSync(`/proc/${pid}/oom_score_adj`, '500')
  const [, soft, hard] =
    /^Max open files\s+(\d+)\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'utf8')) ?? []
  expect(Number(soft)).toBeGreaterThan(1024)
  return Number(hard)
}

function appearance(folder: string): Promise<void> {
  const seen = Promise.withResolvers<void>()
  const watcher = watch(folder, () => seen.resolve())
  return seen.promise.finally(() => watcher.close())
}
