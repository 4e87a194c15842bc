import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { RenameRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import type { ContainerOptions } from '../../support/containers/container-requests.ts'
import { podOf } from '../../support/containers/pod.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import {
  type AgentPod,
  initPidOf,
  inNamespaceOf,
  killAgent,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const HOSTS = '/run/kata-containers/shared/containers/pod-hosts'
/** Answers each line in one write, which one call reads. */
const SHOW =
  'while read line; do all=$(hostname; cat /etc/hosts /etc/resolv.conf; echo end $line); echo "$all"; done'

describe('a pod that is renamed', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({}, { dns: ['nameserver 10.0.0.1'] })
    inNamespaceOf(pod.started, 'mkdir', '-p', HOSTS.slice(0, HOSTS.lastIndexOf('/')))
    writeFileSync(pod.started.inside(HOSTS), '127.0.0.1 podname\n')
  })
  afterAll(() => pod?.stop())

  async function rename(request: DeepPartial<RenameRequest>): Promise<void> {
    await pod.started.lifecycle.rename(RenameRequest.fromPartial(request))
  }

  const mounts = (
    ...sources: readonly (readonly [destination: string, source: string])[]
  ): ContainerOptions => ({
    mounts: sources.map(([destination, source]) => ({
      destination,
      source,
      type: 'bind',
      options: ['rbind', 'rw'],
    })),
  })

  it('goes on: processes, streams, waits, exits, host name and files, also in the next agent', async () => {
    const files = mounts(
      ['/etc/hosts', HOSTS],
      ['/etc/resolv.conf', '/run/kata-containers/sandbox/resolv.conf'],
    )
    const init = await pod.run('c1', ['sh', '-c', SHOW], files)
    const waited = init.wait()
    await init.write('1\n')
    expect(await init.readUntil('end 1\n')).toBe('podname\n127.0.0.1 podname\nnameserver 10.0.0.1end 1\n')
    const pid = initPidOf(pod.started, 'c1')
    const read = init.readUntil('end 2\n')
    const hosts = '127.0.0.1 other\n'
    await rename({
      sandboxId: 'other',
      containers: [{ oldId: 'c1', newId: 'd1' }],
      ...{ hostname: 'othername', dns: ['nameserver 10.0.0.2'], hosts },
    })
    const { introspection } = pod.started
    await expect(init.write('2\n')).rejects.toMatchObject({ message: "container id 'c1': is 'd1' now" })
    const renamed = await pod.add('d1', 'x', ['hostname'])
    expect((await renamed.readAll()).toString()).toBe('othername\n')
    for (const isNext of [false, true]) {
      if (isNext) await killAgent(pod)
      await pod.agent.writeStdin({ containerId: 'd1', execId: 'd1', data: Buffer.from('2\n') })
      expect((await introspection.getSandbox({})).id).toBe('other')
      const { containers } = await introspection.listContainers({ containerId: 'd1' })
      expect(containers).toMatchObject([{ containerId: 'd1', initPid: pid }])
      const { processes } = await introspection.listProcesses({ containerId: 'd1' })
      expect(processes[0]).toMatchObject({ containerId: 'd1', pid })
      const { metrics } = await pod.agent.getMetrics({})
      expect(metrics).toMatch(/container="d1"/)
      expect(metrics).not.toMatch(/container="c1"/)
    }
    expect(await read).toContain(`othername\n${hosts}nameserver 10.0.0.2end 2\n`)
    await pod.agent.signalProcess({ containerId: 'd1', execId: '', signal: 9 })
    // This call came before the Rename, and was sent again.
    expect(await waited).toBe(137)
    const exitsOf = async () => {
      const { exits } = await introspection.listExits({ afterSequence: 0n, containerId: 'd1' })
      return exits.map(({ execId, status }) => [execId, status])
    }
    // An exit is told once the count of out-of-memory kills has been read, which no WaitProcess awaits.
    await expect.poll(exitsOf).toEqual([
      ['x', 0],
      ['', 137],
    ])
    await pod.remove('d1')
    expect(leftoversOf(pod.started, 'c1', 'd1')).toEqual(NOTHING_LEFT)
  })

  it('changes no host name for a container that shares the one of the sandbox', async () => {
    await pod.create('sharing', ['sleep', '1000'])
    const refused = rename({ containers: [{ oldId: 'sharing', hostname: 'mine' }], hostname: 'ours' })
    await expect(refused).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: "container 'sharing': has no UTS namespace of its own",
    })
    await pod.remove('sharing')
  })

  it('by agent-ctl', async () => {
    await pod.run('web', ['sleep', '1000'])
    const address = ['-a', `unix://${pod.started.path}`]
    const file = join(pod.root, '..', 'hosts')
    writeFileSync(file, '127.0.0.1 shop\n')
    const words = ['rename', '--sandbox', 'shop', '--hostname', 'shopname', '--hosts', file, 'web=shop-web']
    const done = await ctl([...address, ...words])
    expect(done).toEqual({ status: 0, stdout: 'the sandbox is shop\nweb is shop-web\n', stderr: '' })
    const json = await ctl([...address, '-o', 'json', 'rename', 'shop-web=web'])
    expect(JSON.parse(json.stdout)).toEqual({
      sandboxId: '',
      containers: [{ oldId: 'shop-web', newId: 'web', hostname: '', hosts: '' }],
    })
    expect(readFileSync(pod.started.inside(HOSTS), 'utf8')).toBe('127.0.0.1 other\n')
    const events = await ctl([...address, 'events'])
    expect(events.stdout).toContain('renamed: the sandbox is shop, web is shop-web\n')
    expect(await ctl([...address, 'rename'])).toMatchObject({ status: 2 })
    expect(await ctl([...address, 'rename', 'web'])).toMatchObject({ status: 2 })
    expect((await ctl([...address, 'rename', 'nope=web2'])).stderr).toBe(
      "agent-ctl: Rename: NOT_FOUND: containers[0].old_id: no container 'nope'\n",
    )
    await pod.remove('web')
  })
})

it('a container of before the sandbox has a host name of its own, and gets another one', async () => {
  const started = await startAgent()
  try {
    const { agent } = started
    const pod = podOf(agent, busyboxRoot(temporaryFolder()))
    const init = await pod.run('own', ['sh', '-c', 'hostname; read line; hostname'], {
      spec: { Hostname: 'mine' },
    })
    expect(await init.readUntil('\n')).toBe('mine\n')
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
    const containers = [{ oldId: 'own', newId: 'new', hostname: 'anew' }]
    await started.lifecycle.rename(RenameRequest.fromPartial({ hostname: 'ours', containers }))
    await agent.writeStdin({ containerId: 'new', execId: '', data: Buffer.from('\n') })
    const { data } = await agent.readStdout({ containerId: 'new', execId: '', len: 100 })
    expect(Buffer.from(data).toString()).toBe('anew\n')
  } finally {
    await started.stop()
  }
})
