import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import {
  containerRequest,
  type Machine,
  machine,
  machineWithContainer,
  sandboxRequest,
} from '../../support/handlers/machine.ts'
import { parseLogLine } from '../../support/log-lines.ts'

function damagedState(): MemoryStateFiles {
  const state = new MemoryStateFiles()
  state.write('sandbox', Buffer.from('damaged'))
  return state
}

/** The agent that follows an agent which could not read the state of `before` and has ended. */
async function agentAfter({ os, runtime }: Pick<Machine, 'os' | 'runtime'>) {
  const lines: string[] = []
  const log = jsonLogger({ sink: (line) => lines.push(line), level: () => 'critical', version: '1', pid: 1 })
  const state = damagedState()
  const restarted = () => machine({ os, runtime, log, state, config: { restarted: true } })
  const first = await restarted()
  await expect(first.handlers.restore()).rejects.toThrow('saved state not restored: state sandbox')
  const { handlers } = await restarted()
  return { os, runtime, handlers, lines }
}

async function restartedAgent() {
  return agentAfter(await machineWithContainer())
}

describe('crash recovery of an agent that cannot read the state', () => {
  it('kills and removes everything left, and says why', async () => {
    const { os, handlers, lines } = await restartedAgent()
    const target = '/run/user/1000/run/kata-containers/shared/containers'
    await os.files.makeDirectories(target)
    await os.mounts.mount({ source: 'kataShared', target, type: 'virtiofs', flags: [], data: '' })
    await handlers.restore()
    expect(os.system.processes.size).toBe(0)
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    expect(await os.files.list('/run/kata-containers')).toEqual([])
    expect(await os.files.list('/run/microvm-agent/runtime/state')).toEqual([])
    expect(lines.map(parseLogLine)).toMatchObject([
      {
        level: 'CRIT',
        msg: 'saved state not restored',
        error: expect.stringContaining('state sandbox'),
      },
      { level: 'CRIT', containers: '1' },
    ])
  })

  it('kills all processes in the cgroups of containers, and no others', async () => {
    const { os, runtime } = await machineWithContainer()
    for (const [pid, cgroup] of [
      [7001, 'containers/pods.slice/c2'],
      [7002, 'others'],
    ] as const) {
      os.system.processes.add(pid)
      await os.files.put(`/sys/fs/cgroup/freezer/${cgroup}/cgroup.procs`, `${pid}\n`)
    }
    const { handlers } = await agentAfter({ os, runtime })
    await handlers.restore()
    const killed = os.system.signals.map(({ pid }) => pid)
    expect(killed).toContain(7001)
    expect(killed).not.toContain(7002)
  })

  it('makes container calls fail with `Dead agent: restarted` until a sandbox is created', async () => {
    const { os, handlers } = await restartedAgent()
    await handlers.restore()
    const wait = () => handlers.waitProcess({ containerId: 'c1', execId: '' }, neverAborted)
    await expect(wait()).rejects.toMatchObject({ code: 'INTERNAL', message: 'Dead agent: restarted' })
    await expect(handlers.createContainer(containerRequest('c2'), neverAborted)).rejects.toThrow('Dead agent')
    await handlers.createSandbox(sandboxRequest(), neverAborted)
    expect(os.system.processes.size).toBe(0)
    await expect(wait()).rejects.toThrow('Invalid container id')
    await handlers.createContainer(containerRequest('c1'), neverAborted)
  })

  it('removes mapped devices of image layers, and no others', async () => {
    const { os, handlers } = await restartedAgent()
    const target = { type: 'verity', sectors: 8n, parameters: '' }
    for (const name of ['microvm-layers-0123abcd-0', 'other-layers']) await os.blockDevices.map(name, target)
    await handlers.restore()
    expect([...os.blockDevices.mapped.keys()]).toEqual(['other-layers'])
  })

  it('unmounts its own resolv.conf, and no other', async () => {
    const { os, runtime, handlers: before } = await machine()
    const target = '/etc/resolv.conf'
    await os.files.put('/lib/resolv.conf', '')
    await os.mounts.mount({ source: '/lib/resolv.conf', target, type: '', flags: ['bind'], data: '' })
    await before.createSandbox(sandboxRequest({ dns: ['nameserver 1.1.1.1'] }), neverAborted)
    const { handlers } = await agentAfter({ os, runtime })
    await handlers.restore()
    const left = os.mounts.entries.filter(({ mountPoint }) => mountPoint === target)
    expect(left).toMatchObject([{ source: '/lib/resolv.conf' }])
  })

  it('ends when resolv.conf is a link to itself', async () => {
    const { os, handlers } = await restartedAgent()
    await os.files.removeFile('/etc/resolv.conf')
    await os.files.symlink('resolv.conf', '/etc/resolv.conf')
    await handlers.restore()
    expect(await os.files.list('/run/kata-containers')).toEqual([])
  })

  it('continues when something cannot be removed', async () => {
    const { os, handlers } = await restartedAgent()
    os.mounts.failWith = (call) => (call === 'unmount' ? 'EBUSY' : undefined)
    await handlers.restore()
    expect(os.system.processes.size).toBe(0)
  })
})

describe('crash recovery of a first agent', () => {
  it('changes nothing', async () => {
    const { os, handlers } = await machine()
    await os.files.put('/run/kata-containers/x', '')
    await handlers.restore()
    expect(await os.files.list('/run/kata-containers')).toEqual(['x'])
  })
})
