import { readFileSync, writeFileSync } from 'node:fs'
import { expect, vi } from 'vitest'
import { RenameRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { LinuxResources } from '../../../src/gen/oci.ts'
import { podOf } from '../containers/pod.ts'
import { inNamespaceOf, leftoversOf, NOTHING_LEFT } from '../host/agent-pod.ts'
import type { AgentProcess } from '../host/agent-process.ts'

const FOLDER = '/run/kata-containers/shared/containers'
const HOSTS = `${FOLDER}/hosts`
const FIXED = `${FOLDER}/fixed`
const ROUNDS = 3

/** Renames a pod back and forth, and fails to rename it in the middle: it has the old names or the new ones, whole. */
export async function renames(started: AgentProcess, root: string): Promise<void> {
  const { agent, introspection, lifecycle } = started
  await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname', dns: ['nameserver 10.0.0.1'] })
  inNamespaceOf(started, 'mkdir', '-p', FOLDER)
  for (const path of [HOSTS, FIXED]) writeFileSync(started.inside(path), 'podname\n')
  inNamespaceOf(started, 'mount', '--bind', FIXED, FIXED)
  inNamespaceOf(started, 'mount', '-o', 'remount,bind,ro', FIXED)
  const pod = podOf(agent, root)
  const bind = (source: string) => ({
    mounts: [{ destination: '/etc/hosts', source, type: 'bind', options: ['rbind'] }],
  })
  const first = await pod.run('r1', ['sh', '-c', 'read line; hostname; cat /etc/hosts; exit 7'], bind(HOSTS))
  const second = await pod.run('r2', ['sh', '-c', 'read line; exit 8'])
  const waits = [first.wait(), second.wait()]
  const rename = async (of: (name: string) => string, to: (name: string) => string, hostname: string) => {
    const containers = ['r1', 'r2'].map((name) => ({ oldId: of(name), newId: to(name) }))
    const names = {
      sandboxId: to('pod'),
      hostname,
      hosts: `${hostname}\n`,
      dns: [`nameserver 10.0.0.${hostname.length}`],
    }
    await lifecycle.rename(RenameRequest.fromPartial({ containers, ...names }))
  }
  const expectNames = async (to: (name: string) => string, hostname: string, ids = ['r1', 'r2']) => {
    const { containers } = await introspection.listContainers({ containerId: '' })
    expect(containers.map(({ containerId }) => containerId).sort()).toEqual(ids.map(to))
    expect((await introspection.getSandbox({})).id).toBe(to('pod'))
    expect(readFileSync(started.inside(HOSTS), 'utf8')).toBe(`${hostname}\n`)
    expect(inNamespaceOf(started, 'nsenter', '--uts=/run/sandbox-ns/uts', 'hostname')).toBe(`${hostname}\n`)
  }
  const same = (name: string) => name
  const anew = (name: string) => `new-${name}`
  // Its file cannot be written, which shows when the host name has another value already.
  const failing = await pod.run('r3', ['sleep', '1000'], bind(FIXED))
  await expect(rename(same, anew, 'failing')).rejects.toMatchObject({ code: 'INTERNAL' })
  await expectNames(same, 'podname', ['r1', 'r2', 'r3'])
  await failing.signal(9)
  await pod.remove('r3')
  for (let round = 0; round < ROUNDS; round++) {
    await rename(same, anew, 'anew')
    await expectNames(anew, 'anew')
    await rename(anew, same, 'same')
    await expectNames(same, 'same')
  }
  await rename(same, anew, 'last')
  // A renamed container has its new limits by its new id.
  const limit = { Pids: { Limit: 77n } }
  await agent.updateContainer({ containerId: anew('r1'), resources: LinuxResources.fromPartial(limit) })
  const { cgroupStats } = await agent.statsContainer({ containerId: anew('r1') })
  expect(cgroupStats?.pidsStats?.limit).toBe(77n)
  for (const name of ['r1', 'r2']) {
    await agent.writeStdin({ containerId: anew(name), execId: anew(name), data: Buffer.from('\n') })
  }
  // These calls name the containers by ids of before all renames.
  expect(await Promise.all(waits)).toEqual([7, 8])
  for (const name of ['r1', 'r2']) await pod.remove(anew(name))
}

export async function nothingOfRenames(started: AgentProcess): Promise<void> {
  await vi.waitFor(() => expect(leftoversOf(started, 'r1', 'r2', 'r3')).toEqual(NOTHING_LEFT), {
    timeout: 20_000,
  })
  const undone = started.log.filter(({ msg, step }) => msg === 'undo step failed' && step !== FIXED)
  expect(undone).toEqual([])
}
